"""What is sent and computed in one round of secure aggregation: bytes of each message, primitives, who is enough."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from edgefl.methods.parts.payload import Part
from edgefl.privacy.secure_aggregation import COLLECT, UNMASK, SecureAggregation


class Sizes(NamedTuple):
    """Bytes of the parts of messages; ``share`` is of a client that answered, ``lost_share`` of one that was lost.

    ``around`` are the bytes around the parts of each stage, down and up: once, and for each item.
    """

    public_key: float
    encrypted_share_pair: float
    share: float
    lost_share: float
    own_keys: int = 0  # the client's own keys among those that it is sent
    around: Mapping[str, tuple[float, ...]] = {}


FLOWER = Sizes(
    *(215, 612, 52, 324, 1),
    {
        "setup": (194, 0, 54, 0),
        "share_keys": (49, 37, 58, 13),
        COLLECT: (297, 13, 198, 0),
        UNMASK: (81.5, 10.5, 59, 12),
    },
)
"""Of Flower 1.42: PEM of keys on a curve of 384 bits, Fernet, and its protocol buffers, with headers of NumPy."""

_HEADERS = 256
"""NumPy's headers of the vector and of the weight, in Flower's form."""


def sizes_of(spec: SecureAggregation) -> Sizes:
    """In Flower's form or, packed, those of the papers."""
    share = spec.share_bits / 8
    return FLOWER if spec.in_flowers_form else Sizes(spec.key_bits / 8, 2 * share, share, share)


def coded_bytes(spec: SecureAggregation, cohort: int, entries: int) -> int:
    """Of one coded mask of LightSecAgg, ⌈d / (U - T)⌉ numbers."""
    return -(-entries // (spec.needed(cohort) - spec.privacy(cohort))) * spec.element_bytes


def masked_bytes(spec: SecureAggregation, cohort: int, entries: int) -> int:
    """Of a masked vector of so many numbers; in Flower's form with the client's weight as one more."""
    if spec.light:
        return coded_bytes(spec, cohort, entries) * (spec.needed(cohort) - spec.privacy(cohort))
    if spec.in_flowers_form:
        return 8 * (entries + 1) + _HEADERS
    return math.ceil(entries * spec.entry_bits(cohort) / 8)


def masked(spec: SecureAggregation, cohort: int, parts: Sequence[Part]) -> tuple[Part, ...]:
    """What a client uploads in place of these ``parts``, of float32 numbers."""
    vector = masked_bytes(spec, cohort, sum(part.bytes for part in parts) // 4)
    around = int(FLOWER.around[COLLECT][2]) * (spec.in_flowers_form and not spec.light)
    return _parts(masked_vector=vector, overhead=around)


def _parts(**bytes: float) -> tuple[Part, ...]:
    return tuple(Part(name, math.ceil(size), 0) for name, size in bytes.items() if size)


def circles(spec: SecureAggregation, order: Sequence[int]) -> dict[int, frozenset[int]]:
    """The clients that hold shares of each client's secrets, itself included, on a ring in this ``order``.

    An even number of them takes the opposite client, too, or, on a ring of an odd number (and in Flower), one more.

    >>> sorted(circles(SecureAggregation(kind="secagg_plus", neighbours=3), [4, 7, 1, 9, 5])[4])
    [4, 5, 7]
    """
    clients, count = len(order), spec.holders(len(order))
    if count >= clients:
        return dict.fromkeys(order, frozenset(order))
    sides = count // 2 if count % 2 or clients % 2 or spec.flower else count // 2 - 1
    offsets = [*range(-sides, sides + 1), *([clients // 2] if 2 * sides + 1 < count else [])]
    return {each: frozenset(order[(place + far) % clients] for far in offsets) for place, each in enumerate(order)}


class SecureRound:
    """One round: who holds shares of whom, and what each stage sends and computes.

    ``answered`` are the clients that answered each stage that is over, by its name.
    """

    def __init__(self, spec: SecureAggregation, order: Sequence[int], entries: int) -> None:
        self.spec, self.circle, self._clients = spec, circles(spec, order), len(order)
        self.answered: dict[str, AbstractSet[int]] = {}
        self._sizes, self._needed = sizes_of(spec), spec.needed(len(order))
        self._numbers = entries + 1 if spec.in_flowers_form else entries  # with the weight
        self._coded = coded_bytes(spec, len(order), entries) if spec.light else 0

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
        if self.spec.light:
            return _parts(coded_masks=(len(self.near(client, "share_masks")) - 1) * self._coded * (stage == COLLECT))
        keys, pairs = len(self.near(client, "setup")) - 1, len(self.near(client, "share_keys")) - 1
        once, each, *_ = self._sizes.around.get(stage, (0, 0))
        if stage == "share_keys":
            keys += self._sizes.own_keys
            return _parts(public_keys=2 * keys * self._sizes.public_key, overhead=once + each * keys)
        if stage == COLLECT:
            shares = pairs * self._sizes.encrypted_share_pair
            return _parts(encrypted_shares=shares, overhead=once + each * pairs)
        circle = len(self.circle[client]) * (stage == UNMASK)
        return _parts(
            overhead=round(once + each * circle + 2 * (each > 0) * (circle > len(self.near(client, COLLECT))))
        )

    def up(self, stage: str, client: int) -> tuple[Part, ...]:
        """What the client answers in a stage, but for its masked vector."""
        if self.spec.light:
            return _parts(coded_masks=self._coded * (self._clients - 1 if stage == "share_masks" else 1))
        pairs, shared = len(self.near(client, "setup")) - 1, len(self.near(client, "share_keys"))
        *_, once, each = self._sizes.around.get(stage, (0, 0))
        if stage == "setup":
            return _parts(public_keys=2 * self._sizes.public_key, overhead=once)
        if stage == "share_keys":
            return _parts(encrypted_shares=pairs * self._sizes.encrypted_share_pair, overhead=once + each * pairs)
        left = len(self.near(client, COLLECT))
        shares = left * self._sizes.share + (shared - left) * self._sizes.lost_share
        return _parts(shares=shares, overhead=once + each * shared + (each > 0) * (shared - left))

    def work(self, stage: str, client: int) -> Counter[str]:
        """The primitives of a client in a stage."""
        others, pairs = len(self.near(client, "setup")) - 1, len(self.near(client, "share_keys")) - 1
        if stage == "share_masks":
            random = self._needed * self._coded // self.spec.element_bytes
            return Counter(mask_elements=random, field_products=random * self._clients)
        if stage == "setup":
            return Counter(key_pairs=2)
        if stage == "share_keys":
            return Counter(key_agreements=others, encryptions=others, secrets_shared=2, shares=2 * (others + 1))
        if stage == COLLECT and not self.spec.light:
            return Counter(decryptions=pairs, key_agreements=pairs, mask_elements=self._numbers * (pairs + 1))
        return Counter()

    def server_work(self, stage: str) -> Counter[str]:
        """The primitives of the server after a stage."""
        if stage != UNMASK:
            return Counter()
        if self.spec.light:
            rows = self._needed * (self._needed - self.spec.privacy(self._clients))
            return Counter(field_products=rows * self._coded // self.spec.element_bytes)
        shared, left = self.answered["share_keys"], self.answered[COLLECT]
        around = sum(len(self.near(client, "share_keys")) - 1 for client in shared - left)
        masks = self._numbers * (len(left) + around)
        return +Counter(mask_elements=masks, key_agreements=around, secrets_combined=len(shared))

    def enough(self, active: AbstractSet[int]) -> bool:
        """True if what these clients hold suffices to unmask the sum."""
        if self.spec.light:
            return len(active) >= self._needed
        shared = self.answered.get("share_keys", self.answered.get("setup", frozenset()))
        around = {self.circle[client] for client in (self.circle if self.spec.flower else shared)}
        return bool(active) and all(len(circle & active) >= self._needed for circle in around)


def formulas(spec: SecureAggregation, cohort: int, entries: int) -> dict[str, float]:
    """Bytes of a user in a round without losses, but for the model that comes down, and their parts.

    >>> found = formulas(SecureAggregation(kind="secagg", bits=16), cohort=1024, entries=2**20)
    >>> found["user_bytes"], round(found["expansion"], 2)  # as in Bonawitz et al. 2017
    (3637120.0, 1.73)
    """
    if spec.light:
        needed, coded = spec.needed(cohort), coded_bytes(spec, cohort, entries)
        return {
            "target_survivors": needed,
            "entries_of_a_coded_mask": coded // spec.element_bytes,
            "coded_masks_sent_by_each_bytes": (cohort - 1) * coded,
            "masked_model_bytes": masked_bytes(spec, cohort, entries),
            "sum_of_coded_masks_bytes": coded,
            "answers_needed_to_recover": needed,
        }
    holders, sizes, bits = spec.holders(cohort), sizes_of(spec), spec.entry_bits(cohort)
    total = 2 * (holders + sizes.own_keys) * sizes.public_key
    total += 2 * (holders - 1) * sizes.encrypted_share_pair + holders * sizes.share
    total += masked_bytes(spec, cohort, entries) if spec.in_flowers_form else entries * bits / 8
    bits = 64 if spec.in_flowers_form else bits
    return {"bits_of_a_masked_entry": bits, "user_bytes": total, "expansion": total / (entries * spec.bits / 8)}
