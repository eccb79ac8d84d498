"""The options of local training that a local rule may read: all but its own."""

from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr

from edgefl.fleet import InputPipeline
from edgefl.methods.parts.common_finish import CommonFinish
from edgefl.methods.parts.rates import LearningRate, Rate, rate_at
from edgefl.models.layout import Layout, matching
from edgefl.options import Component


class StepOptions(Component):
    """The options of :class:`~edgefl.methods.parts.local_options.LocalOptions`, which chooses the optimizer."""

    epochs: int | None = Field(None, ge=1, le=1_000_000, description="passes over the data; 1 if steps is not set")
    steps: int | None = Field(None, ge=1, le=1_000_000_000, description="local steps instead of epochs")
    batch: int = Field(default=32, ge=1, le=1_000_000_000, description="images in a minibatch")
    accumulate: int = Field(1, ge=1, le=1_000_000, description="minibatches whose gradients a local step adds up")
    precision: Literal["float32", "autocast", "bfloat16"] = Field(
        default="float32",
        description="how devices store what a step computes: autocast keeps float32 weights and makes copies and "
        "activations of 2 bytes, as PyTorch does; bfloat16: also weights, gradients and optimizer state have 2 bytes",
    )
    lr: LearningRate = Field(default=0.1, description="learning rate η_0, or one that changes: a kind and its options")
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="η_t = η_0 · lr_decay^t, per round")
    optimizer: Any = Field(default=None, description="chosen in LocalOptions")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="heavy-ball momentum, re-created every round")
    nesterov: bool = Field(default=False, description="Nesterov momentum")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty, added after clipping; AdamW's is decoupled")
    no_decay: tuple[str, ...] = Field((), description="parameters without decay: patterns of BLOCK.NAME: '*.bias'")
    clip_norm: float | None = Field(default=None, gt=0, description="maximum global L2 norm of the gradient")
    drop_last: bool = Field(default=False, description="drop an incomplete last batch (FedAlign)")
    input: InputPipeline | None = Field(None, description="the seconds in which a client makes batches; null: 0")
    common_finish: CommonFinish | None = Field(None, description="fits each client's steps to a common finish")
    _decayed: tuple[slice, ...] = PrivateAttr((slice(None),))
    _poisson: bool = PrivateAttr(False)

    @property
    def decayed(self) -> tuple[slice, ...]:
        """The places of the parameters with weight decay in the trained vector; see :meth:`on`."""
        return self._decayed

    @property
    def poisson(self) -> bool:
        """True if each step draws each sample on its own; see :meth:`drawing`."""
        return self._poisson

    def drawing(self) -> Self:
        """The options with Poisson sampling of batches, in place of passes over the samples."""
        options = self.model_copy()
        options._poisson = True
        return options

    def on(self, layout: Layout, first: int = 0) -> Self:
        """The options for a model of which the blocks from ``first`` (0-based) on are trained."""
        if not self.no_decay and not layout.unused:
            return self
        names = {layout.name_of(each): each for each in layout.parameters}
        without = matching(names, self.no_decay, field="local.no_decay") | layout.unused
        before, _ = layout.before(first)
        places: list[slice] = []
        for name, entry in names.items():
            start = entry.start - before
            if name in without or start < 0:
                continue
            if places and places[-1].stop == start:
                start = places.pop().start
            places.append(slice(start, entry.start - before + entry.numel))
        options = self.model_copy()
        options._decayed = tuple(places)
        return options

    def lr_at(self, round: int) -> float:
        """η_t, the learning rate of a round, from 0.

        >>> StepOptions(lr=0.5, lr_decay=0.5).lr_at(2)
        0.125
        """
        return rate_at(self.lr, round) * self.lr_decay**round

    def lr_of_steps(self, round: int, steps: int) -> tuple[float, ...]:
        """The learning rate of each local step of a round, if they differ; else nothing.

        >>> StepOptions(lr={"kind": "linear", "value": 1, "rounds": 2, "over": "steps"}).lr_of_steps(1, 2)
        (0.5, 0.25)
        """
        if not isinstance(self.lr, Rate) or self.lr.over == "rounds":
            return ()
        times = [round + step / steps for step in range(steps)]
        return tuple(self.lr.at(time, 1 / steps) * self.lr_decay**round for time in times)

    def steps_for(self, samples: int) -> int:
        """H_k, the local steps of a client with ``samples`` images.

        >>> StepOptions(epochs=2, batch=50).steps_for(120), StepOptions(steps=7).steps_for(120)
        (6, 7)
        """
        if self.steps is not None:
            return self.steps
        return (self.epochs or 1) * self.steps_of_an_epoch(samples)

    def steps_of_an_epoch(self, samples: int) -> int:
        """Local steps of one pass over ``samples`` images, even if ``steps`` is set instead of ``epochs``."""
        whole, rest = self.a_pass(samples)
        return whole + (rest > 0)

    @property
    def step_samples(self) -> int:
        """Samples of a whole local step, in all of its minibatches."""
        return self.batch * self.accumulate

    def a_pass(self, samples: int) -> tuple[int, int]:
        """The whole local steps of one pass, and the samples of the smaller step at its end, 0 without one.

        >>> StepOptions(batch=50).a_pass(120), StepOptions(batch=25, accumulate=2, drop_last=True).a_pass(190)
        ((2, 20), (3, 25))
        """
        used = samples // self.batch * self.batch if self.drop_last else samples
        return divmod(used or samples, self.step_samples)
