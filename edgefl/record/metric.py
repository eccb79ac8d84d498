"""The metric by which the models of a run are compared."""

import math
from typing import Any, Literal, NamedTuple

WORST = 1e30
"""The largest value of a metric of which lower values are better, in place of larger ones and NaN."""

Better = Literal["higher", "lower"]


class Metric(NamedTuple):
    """A figure of a model on evaluation data; ``title`` is its name in sentences, a ``share`` is shown in per cent."""

    name: str
    better: Better = "higher"
    share: bool = True
    title: str = ""

    @property
    def word(self) -> str:
        return self.title or self.name

    @property
    def is_accuracy(self) -> bool:
        """True for the accuracy, which files also give under names of its own."""
        return self.name == "accuracy"

    @property
    def dimension(self) -> str:
        return "fraction" if self.share else "number"

    def reaches(self, value: Any, goal: float) -> Any:
        """True where a value, or each of an array, is as good as a goal; never for NaN.

        >>> ACCURACY.reaches(0.6, 0.5), Metric("rmse", "lower", share=False).reaches(0.6, 0.5)
        (True, False)
        """
        return value >= goal if self.better == "higher" else value <= goal

    def bounded(self, value: float) -> float:
        """A value that can be written and compared: the worst in place of one that is not finite.

        >>> ACCURACY.bounded(float("nan")), Metric("rmse", "lower", share=False).bounded(1e99)
        (0.0, 1e+30)
        """
        if self.better == "higher":
            return value if math.isfinite(value) else 0.0
        return min(value, WORST) if not math.isnan(value) else WORST

    def best(self, *values: float) -> float:
        return max(values) if self.better == "higher" else min(values)


ACCURACY = Metric("accuracy")
