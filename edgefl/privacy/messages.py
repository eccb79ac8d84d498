"""What is sent and computed in one round of secure aggregation: bytes of each message, primitives, who is enough."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from edgefl.methods.parts.payload import Part
from edgefl.privacy.secure_aggregation import COLLECT, UNMASK, SecureAggregation


class Overhead(NamedTuple):
    """Bytes around the parts of a stage's messages: once, and for each item of a part."""

    down: float = 0.0
    down_each: float = 0.0
    up: float = 0.0
    up_each: float = 0.0


class Sizes(NamedTuple):
    """Bytes of the parts of messages; ``share`` is of a client that answered, ``lost_share`` of one that was lost."""

    public_key: float
    encrypted_share_pair: float
    share: float
    lost_share: float
    own_keys: int = 0  # the client's own keys among those that it is sent
    around: Mapping[str, Overhead] = {}


FLOWER = Sizes(
    *(215, 612, 52, 324, 1),
    {
        "setup": Overhead(194, 0, 54),
        "share_keys": Overhead(49, 37, 58, 13),
        COLLECT: Overhead(297, 13, 198),
        UNMASK: Overhead(81.5, 10.5, 59, 12),
    },
)
"""Of Flower 1.42: PEM of keys on a curve of 384 bits, Fernet, and its protocol buffers, with headers of NumPy."""

PARTS = "public_key", "encrypted_share_pair", "share", "lost_share"


def sizes_of(spec: SecureAggregation) -> Sizes:
    """In Flower's form or, packed, those of the papers."""
    share = spec.share_bits / 8
    return FLOWER if spec.in_flowers_form else Sizes(spec.key_bits / 8, 2 * share, share, share)


_HEADERS = 256
"""NumPy's headers of the vector and of the weight, in Flower's form."""


def masked_bytes(spec: SecureAggregation, cohort: int, entries: int) -> int:
    """Bytes of a masked vector of so many numbers; in Flower's form with the client's weight as one more."""
    if spec.kind == "lightsecagg":
        u, t = spec.needed(cohort), spec.privacy(cohort)
        return coded_entries(spec, cohort, entries) * (u - t) * element_bytes(spec)
    if spec.in_flowers_form:
        return 8 * (entries + 1) + _HEADERS
    return math.ceil(entries * spec.entry_bits(cohort) / 8)


def masked(spec: SecureAggregation, cohort: int, parts: Sequence[Part]) -> tuple[Part, ...]:
    """What a client uploads in place of these ``parts``, of float32 numbers."""
    entries = sum(part.bytes for part in parts) // 4
    around = FLOWER.around[COLLECT].up if spec.in_flowers_form and spec.kind != "lightsecagg" else 0
    vector = Part("masked_vector", masked_bytes(spec, cohort, entries), 0)
    return (vector, Part("overhead", int(around), 0)) if around else (vector,)


def element_bytes(spec: SecureAggregation) -> int:
    """Bytes of a number of LightSecAgg's field."""
    return 8 if spec.in_flowers_form else 4


def coded_entries(spec: SecureAggregation, cohort: int, entries: int) -> int:
    """⌈d / (U - T)⌉, the numbers of one coded mask of LightSecAgg."""
    return -(-entries // (spec.needed(cohort) - spec.privacy(cohort)))


def circles(spec: SecureAggregation, order: Sequence[int]) -> dict[int, frozenset[int]]:
    """The clients that hold shares of each client's secrets, itself included, on a ring in this ``order``.

    An even number of them takes the opposite client, too, or, on a ring of an odd number (and in Flower), one more.

    >>> sorted(circles(SecureAggregation(kind="secagg_plus", neighbours=3), [4, 7, 1, 9, 5])[4])
    [4, 5, 7]
    """
    clients = len(order)
    count = spec.holders(clients)
    if count >= clients:
        return dict.fromkeys(order, frozenset(order))
    sides = count // 2 if count % 2 or clients % 2 or spec.flower else count // 2 - 1
    offsets = [*range(-sides, sides + 1), *([clients // 2] if 2 * sides + 1 < count else [])]
    return {
        client: frozenset(order[(place + offset) % clients] for offset in offsets) for place, client in enumerate(order)
    }


class SecureRound:
    """One round: who holds shares of whom, and what each stage sends and computes.

    ``answered`` are the clients that answered each stage that is over, by its name.
    """

    def __init__(self, spec: SecureAggregation, order: Sequence[int], entries: int) -> None:
        self.spec, self.entries = spec, entries
        self.circle = circles(spec, order)
        self.answered: dict[str, AbstractSet[int]] = {}
        self._clients = len(order)
        self.sizes = sizes_of(spec)
        self._light = spec.kind == "lightsecagg"
        self._numbers = entries + 1 if spec.in_flowers_form else entries  # with the weight

    @property
    def coded(self) -> int:
        return coded_entries(self.spec, self._clients, self.entries)

    def near(self, client: int, stage: str) -> AbstractSet[int]:
        """The clients of its circle that answered a stage."""
        circle, answered = self.circle[client], self.answered.get(stage, self.circle.keys())
        return answered if len(circle) == self._clients else circle & answered

    def raises(self, stage: str) -> bool:
        """True if every client of Flower 1.42 fails in a stage.

        They cannot unmask if one of them was lost before it shared its keys, nor share their keys if they have one
        neighbour more than they made shares for.
        """
        holders, shared = self.spec.holders(self._clients), self.answered.get("share_keys", self.circle.keys())
        uneven, wasted = holders % 2 == 0 and holders < self._clients, len(shared) < self._clients
        return self.spec.flower and ((stage == UNMASK and wasted) or (stage == "share_keys" and uneven))

    def down(self, stage: str, client: int) -> tuple[Part, ...]:
        """What the client receives at the start of a stage; in the stage of training, next to the model."""
        if self._light:
            others = (len(self.near(client, "share_masks")) - 1) * (stage == COLLECT)
            return self._parts(stage, "coded_masks", others * self.coded * element_bytes(self.spec), 0, up=False)
        keys = len(self.near(client, "setup")) - 1 + self.sizes.own_keys
        pairs, circle = len(self.near(client, "share_keys")) - 1, len(self.circle[client])
        name, bytes, items = {
            "share_keys": ("public_keys", 2 * keys * self.sizes.public_key, keys),
            COLLECT: ("encrypted_shares", pairs * self.sizes.encrypted_share_pair, pairs),
            UNMASK: ("clients", 0.0, circle + 0.2 * (circle > len(self.near(client, COLLECT)))),
        }.get(stage, ("request", 0.0, 0))
        return self._parts(stage, name, bytes, items, up=False)

    def up(self, stage: str, client: int) -> tuple[Part, ...]:
        """What the client answers in a stage, but for its masked vector."""
        if self._light:
            others = self._clients - 1 if stage == "share_masks" else 1
            return self._parts(stage, "coded_masks", others * self.coded * element_bytes(self.spec), 0, up=True)
        pairs = len(self.near(client, "setup")) - 1
        shared, left = self.near(client, "share_keys"), self.near(client, COLLECT)
        lost = len(shared) - len(left)
        shares = len(left) * self.sizes.share + lost * self.sizes.lost_share
        name, bytes, items = {
            "setup": ("public_keys", 2 * self.sizes.public_key, 2),
            "share_keys": ("encrypted_shares", pairs * self.sizes.encrypted_share_pair, pairs),
        }.get(stage, ("shares", shares, len(shared) + lost / 12))
        return self._parts(stage, name, bytes, items, up=True)

    def _parts(self, stage: str, name: str, bytes: float, items: float, *, up: bool) -> tuple[Part, ...]:
        around = Overhead() if self._light else self.sizes.around.get(stage, Overhead())
        more = round(around.up + items * around.up_each if up else around.down + items * around.down_each)
        parts = Part(name, math.ceil(bytes), 0), Part("overhead", more, 0)
        return tuple(part for part in parts if part.bytes)

    def work(self, stage: str, client: int) -> Counter[str]:
        """The primitives of a client in a stage."""
        if self._light:
            if stage != "share_masks":
                return Counter()
            random = self.spec.needed(self._clients) * self.coded
            return Counter(mask_elements=random, field_products=random * self._clients)
        others, pairs = len(self.near(client, "setup")) - 1, len(self.near(client, "share_keys")) - 1
        masks = {"decryptions": pairs, "key_agreements": pairs, "mask_elements": self._numbers * (pairs + 1)}
        found = {
            "setup": {"key_pairs": 2},
            "share_keys": {
                "key_agreements": others,
                "encryptions": others,
                "secrets_shared": 2,
                "shares": 2 * (others + 1),
            },
            COLLECT: masks,
        }
        return Counter(found.get(stage, {}))

    def server_work(self, stage: str) -> Counter[str]:
        """The primitives of the server after a stage."""
        if stage != UNMASK:
            return Counter()
        if self._light:
            needed = self.spec.needed(self._clients)
            return Counter(field_products=needed * self.coded * (needed - self.spec.privacy(self._clients)))
        shared, left = self.answered["share_keys"], self.answered[COLLECT]
        around = sum(len(self.near(client, "share_keys")) - 1 for client in shared - left)
        masks = {"mask_elements": self._numbers * (len(left) + around), "key_agreements": around}
        return Counter({name: count for name, count in (masks | {"secrets_combined": len(shared)}).items() if count})

    def enough(self, active: AbstractSet[int]) -> bool:
        """True if what these clients hold suffices to unmask the sum."""
        needed = self.spec.needed(self._clients)
        if self._light:
            return len(active) >= needed
        shared = self.answered.get("share_keys", self.answered.get("setup", frozenset()))
        whose = self.circle.keys() if self.spec.flower else shared
        circles = {self.circle[client] for client in whose}
        return bool(active) and all(len(circle & active) >= needed for circle in circles)


def formulas(spec: SecureAggregation, cohort: int, entries: int) -> dict[str, float]:
    """Bytes of a user in a round without losses, but for the model that comes down, and their parts.

    >>> found = formulas(SecureAggregation(kind="secagg", bits=16), cohort=1024, entries=2**20)
    >>> found["user_bytes"], round(found["expansion"], 2)  # as in Bonawitz et al. 2017
    (3637120.0, 1.73)
    """
    if spec.kind == "lightsecagg":
        needed, coded = spec.needed(cohort), coded_entries(spec, cohort, entries)
        return {
            "target_survivors": needed,
            "entries_of_a_coded_mask": coded,
            "coded_masks_sent_by_each_bytes": (cohort - 1) * coded * element_bytes(spec),
            "masked_model_bytes": masked_bytes(spec, cohort, entries),
            "sum_of_coded_masks_bytes": coded * element_bytes(spec),
            "answers_needed_to_recover": needed,
        }
    holders, sizes, bits = spec.holders(cohort), sizes_of(spec), spec.entry_bits(cohort)
    keys = 2 * (holders + sizes.own_keys) * sizes.public_key
    shares = 2 * (holders - 1) * sizes.encrypted_share_pair + holders * sizes.share
    vector = masked_bytes(spec, cohort, entries) if spec.in_flowers_form else entries * bits / 8
    total = float(keys + shares + vector)
    return {
        "bits_of_a_masked_entry": 64 if spec.in_flowers_form else bits,
        "user_bytes": total,
        "expansion": total / (entries * spec.bits / 8),
    }
