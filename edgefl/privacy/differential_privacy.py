"""The options of differential privacy, central, local or of each example."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgefl.options import Options

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AdaptiveClip(Options):
    """A clipping norm that follows a quantile of the norms of updates (Andrew et al. 2021)."""

    initial: Positive = Field(0.1, description="the norm of the first round")
    quantile: float = Field(0.5, gt=0, lt=1, description="the part of the updates that are not clipped")
    rate: Positive = Field(0.2, description="how fast the norm changes")
    count_noise: Positive | None = Field(
        None, description="standard deviation of the noise on the number of updates not clipped; null: cohort / 20"
    )


class DifferentialPrivacy(Options):
    """Clipping and noise, and the privacy loss that they leave."""

    kind: Literal["central", "local", "example"] = Field(
        description="central: the server adds noise to the sum of clipped updates; local: each client to its own; "
        "example: each client to its clipped gradients (DP-SGD)"
    )
    clip: Positive | AdaptiveClip = Field(
        description="largest norm of an update or, example, of an example's gradient; a mapping: adaptive, central only"
    )
    noise: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="noise multiplier σ: the standard deviation on the sum is σ · clip"
    )
    epsilon: Positive | None = Field(
        None, description="in place of noise: the least noise with this ε after all rounds"
    )
    delta: float = Field(gt=0, lt=1, description="δ, which should be below 1 / the number of clients, or of examples")
    sampling: Literal["poisson", "fixed"] = Field(
        "poisson",
        description="poisson: each client is drawn with probability cohort / clients, or each example with batch / its "
        "client's examples; fixed: cohorts of a fixed size, or shuffled batches",
    )
    accountant: Literal["pld", "rdp", "prv", "none"] | None = Field(
        None, description="who computes ε: dp-accounting (pld, rdp), Opacus (prv), or nobody; null: pld, or rdp where "
        "only it has a bound"
    )  # fmt: skip
    step: Literal["per_sample", "fast", "ghost"] = Field(
        "per_sample", description="example: how devices clip, which decides what a local step costs them"
    )

    @model_validator(mode="after")
    def _one_noise(self) -> Self:
        if (self.noise is None) == (self.epsilon is None):
            raise ValueError("expected either noise or epsilon")
        if self.epsilon is not None and self.accountant == "none":
            raise ValueError("epsilon needs an accountant; expected pld, rdp or prv")
        if isinstance(self.clip, AdaptiveClip) and self.kind != "central":
            raise ValueError(f"an adaptive clip is of kind central, found {self.kind}")
        return self

    @property
    def of_clients(self) -> bool:
        return self.kind != "example"
