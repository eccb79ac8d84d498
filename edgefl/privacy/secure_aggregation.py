"""The options of secure aggregation: SecAgg, SecAgg+ and LightSecAgg, and what their primitives take."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgefl.errors import UserError, nearest
from edgefl.options import Options
from edgefl.units import Seconds

COLLECT, UNMASK = "collect_masked_vectors", "unmask"

STAGES = {
    "secagg": ("setup", "share_keys", COLLECT, UNMASK),
    "secagg_plus": ("setup", "share_keys", COLLECT, UNMASK),
    "lightsecagg": ("share_masks", COLLECT, UNMASK),
}
"""The round trips of each protocol; the model comes down, and is trained, in the last but one."""

_Spent = Annotated[Seconds, Field(ge=0)]


class Primitives(Options):
    """What a core of speed 1 (``compute.core_speed``; a Raspberry Pi 4) takes for each primitive.

    The defaults are of the order of P-384, Fernet, Shamir's scheme in Python and NumPy's generator.
    """

    key_pair: _Spent = Field(2e-3, description="to make a pair of keys")
    key_agreement: _Spent = Field(4e-3, description="to agree on a key with another client")
    share: _Spent = Field(2e-4, description="to make one share of a secret")
    encryption: _Spent = Field(3e-4, description="to encrypt, or decrypt, the shares for one client")
    secret: _Spent = Field(5e-3, description="to combine the shares of a secret")
    mask_elements: float = Field(2e7, gt=0, description="elements of masks that are made and added in a second")
    field_products: float = Field(5e7, gt=0, description="products of coded masks (lightsecagg) in a second")

    def seconds(self, work: Mapping[str, int]) -> float:
        """The seconds of so many primitives on a core of speed 1.

        >>> Primitives(key_pair=1, mask_elements=10).seconds({"key_pairs": 2, "mask_elements": 40})
        6.0
        """
        own = {"decryptions": "encryption", "secrets_combined": "secret"}
        total = 0.0
        for name, count in work.items():
            if name.endswith(("elements", "products")):
                total += count / getattr(self, name)
            elif name != "secrets_shared":  # as shares
                total += count * getattr(self, own.get(name, name.removesuffix("s")))
        return total


class SecureAggregation(Options):
    """How the server learns the sum of the clients' updates, and none of them alone."""

    kind: Literal["secagg", "secagg_plus", "lightsecagg"] = Field(
        description="secagg (Bonawitz et al. 2017): each client shares its secrets with all; secagg_plus (Bell et al. "
        "2020): with neighbours on a ring; lightsecagg (So et al. 2022): coded masks"
    )
    neighbours: int | None = Field(
        None, ge=2, description="secagg_plus: clients that hold shares of a secret, its own client included; null: "
        "the least odd number above 2 log2 of the cohort"
    )  # fmt: skip
    threshold: int | None = Field(
        None, ge=1, description="shares of them that are needed, or, with lightsecagg, clients that must remain; "
        "null: more than half"
    )  # fmt: skip
    colluding: int | None = Field(
        None, ge=0, description="lightsecagg: clients that together learn nothing; null: half of the threshold"
    )
    bits: int = Field(22, ge=1, le=32, description="of a quantised number, before numbers are added")
    range: float = Field(8.0, gt=0, description="largest absolute value of a number of an update; others are clipped")
    max_weight: float | None = Field(
        None, gt=0, description="samples by which a client's weight is divided; null: those of the largest client"
    )
    entry: Literal["packed", "int64"] | None = Field(
        None, description="packed: the bits that a sum of numbers needs, and keys and shares as in the papers; int64: "
        "8 bytes, and keys, shares and headers as in Flower 1.42; null: packed, and int64 with flower"
    )  # fmt: skip
    key_bits: int = Field(256, ge=1, description="packed: bits of a public key")
    share_bits: int = Field(256, ge=1, description="packed: bits of a share")
    flower: bool = Field(
        False, description="as Flower 1.42: a loss before the keys are shared wastes the round, and so does an even "
        "number of neighbours"
    )  # fmt: skip
    losses: dict[str, Annotated[float, Field(ge=0, le=1)] | tuple[Annotated[int, Field(ge=0)], ...]] = Field(
        default_factory=dict,
        description="by stage: the probability that a client receives its message and does not answer, or the clients "
        "that never do",
    )
    primitives: Primitives = Field(default_factory=Primitives, description="the seconds of keys, shares and masks")

    @model_validator(mode="after")
    def _of_the_kind(self) -> Self:
        for option, kind in (("neighbours", "secagg_plus"), ("colluding", "lightsecagg")):
            if getattr(self, option) is not None and self.kind != kind:
                raise ValueError(f"{option} is an option of {kind}, found kind {self.kind}")
        if self.flower and (self.kind == "lightsecagg" or self.entry == "packed"):
            raise ValueError("flower has secagg and secagg_plus with entry: int64 only")
        for stage in self.losses:
            if stage not in self.stages:
                raise ValueError(f"losses: unknown stage '{stage}'; {nearest(stage, self.stages)}")
        return self

    @property
    def stages(self) -> tuple[str, ...]:
        return STAGES[self.kind]

    @property
    def light(self) -> bool:
        return self.kind == "lightsecagg"

    @property
    def in_flowers_form(self) -> bool:
        return (self.entry or ("int64" if self.flower else "packed")) == "int64"

    @property
    def element_bytes(self) -> int:
        """Of a number of LightSecAgg's field."""
        return 8 if self.in_flowers_form else 4

    def holders(self, cohort: int) -> int:
        """The clients that hold shares of a client's secrets, itself included.

        >>> [SecureAggregation(kind="secagg_plus").holders(cohort) for cohort in (5, 100)]
        [5, 15]
        """
        if self.kind != "secagg_plus":
            return cohort
        return min(cohort, self.neighbours or 2 * math.ceil(math.log2(max(cohort, 2))) + 1)

    def needed(self, cohort: int) -> int:
        """The shares of a secret, or with lightsecagg the clients, that are needed."""
        return self.threshold or self.holders(cohort) // 2 + 1

    def check(self, cohort: int) -> None:
        """Check the numbers for a cohort.

        Raises:
            UserError: a cohort of so many clients cannot run it.
        """
        if (needed := self.needed(cohort)) > (most := self.holders(cohort)):
            raise UserError(f"expected at most the {most} clients that hold shares, found {needed}", field="threshold")
        if self.light and self.privacy(cohort) >= needed:
            raise UserError(f"expected less than the threshold ({needed}), found {self.colluding}", field="colluding")

    def privacy(self, cohort: int) -> int:
        """T of LightSecAgg."""
        return self.needed(cohort) // 2 if self.colluding is None else self.colluding

    def entry_bits(self, cohort: int) -> int:
        """⌈log2 R⌉, R the number of values that a sum of ``cohort`` quantised numbers may have.

        >>> SecureAggregation(kind="secagg", bits=16).entry_bits(1024)
        26
        """
        largest: int = cohort * (2**self.bits - 1)
        return largest.bit_length()
