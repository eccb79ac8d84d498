"""The metric by which the models of a run are compared."""

from __future__ import annotations

from typing import Literal, NamedTuple

Better = Literal["higher", "lower"]


class Metric(NamedTuple):
    """A figure of a model on evaluation data.

    Attributes:
        name: its name in files and scenarios.
        better: whether higher or lower values are better.
        share: whether it is a share in [0, 1], which is shown in per cent.
        title: its name in sentences.
    """

    name: str
    better: Better = "higher"
    share: bool = True
    title: str = ""

    @property
    def word(self) -> str:
        """Its name in sentences."""
        return self.title or self.name

    @property
    def dimension(self) -> str:
        """How its values are shown."""
        return "fraction" if self.share else "number"

    def reaches(self, value: float, goal: float) -> bool:
        """Whether a value is as good as a goal; never for NaN.

        >>> ACCURACY.reaches(0.6, 0.5), Metric("rmse", "lower", share=False).reaches(0.6, 0.5)
        (True, False)
        """
        return value >= goal if self.better == "higher" else value <= goal

    def best(self, *values: float) -> float:
        """The best of values.

        >>> Metric("rmse", "lower", share=False).best(0.6, 0.5)
        0.5
        """
        return max(values) if self.better == "higher" else min(values)


ACCURACY = Metric("accuracy")
