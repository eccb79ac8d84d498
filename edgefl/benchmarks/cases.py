"""The cases of ``edgefl bench training``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class TrainingCase:
    """One network and one cohort on made-up images.

    Attributes:
        name: the name of the case.
        model, options: the network, as in a scenario.
        shape: channels, height and width of an image.
        clients: the number of all clients.
        cohort: clients in each round.
        batch: images in a minibatch.
        steps: local steps in each round.
        turns: how many times every contender is measured.
        warm_up: seconds of turns before the measured ones, so that an engine reaches a steady state.
        rounds: rounds of the whole job that the case stands for, of which only a few are measured; ``None``: none.
    """

    name: str
    model: str
    shape: tuple[int, int, int]
    cohort: int
    batch: int
    steps: int
    clients: int
    turns: int = 5
    warm_up: float = 1.0
    rounds: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def images(self) -> int:
        """Images that a round trains on."""
        return self.cohort * self.batch * self.steps

    @property
    def local_steps(self) -> int:
        """Local steps in a round."""
        return self.cohort * self.steps

    def quick(self) -> TrainingCase:
        """The same case at a small size, to check that it runs; its figures are not meaningful."""
        return replace(
            self,
            cohort=min(self.cohort, 4),
            batch=min(self.batch, 10),
            steps=min(self.steps, 2),
            clients=4,
            turns=2,
            warm_up=0,
        )


_COLOUR = (3, 32, 32)

CASES: dict[str, TrainingCase] = {
    case.name: case
    for case in (
        TrainingCase("cnn", "cnn", (1, 28, 28), cohort=10, batch=32, steps=10, clients=10, turns=10),
        # 1,000 users with 50 images each, one local epoch: 1,500 rounds are 375,000 local steps.
        TrainingCase(
            "pfl-cifar10", "cnn", _COLOUR, cohort=50, batch=10, steps=5, clients=1000, turns=3, rounds=1500,
            options={"width": 32},
        ),
        TrainingCase("fedadc_cnn", "fedadc_cnn", _COLOUR, cohort=4, batch=50, steps=2, clients=4, turns=3),
        TrainingCase("resnet18", "resnet18", _COLOUR, cohort=10, batch=50, steps=1, clients=10, turns=2),
        TrainingCase("mobilenet_v2", "mobilenet_v2", _COLOUR, cohort=10, batch=50, steps=1, clients=10, turns=2),
        TrainingCase("resnet56", "resnet56", _COLOUR, cohort=10, batch=50, steps=1, clients=10, turns=2),
    )
}  # fmt: skip
"""The cases by name, from the cheapest to the most expensive."""
