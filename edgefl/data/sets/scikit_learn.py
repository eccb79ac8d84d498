"""Tables that scikit-learn contains."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.data.spec import DATA_SETS, DataSpec, Samples
from edgefl.errors import UserError
from edgefl.randomness import generator

TEST_SHARE = 0.2
_SEED = 442
"""Fixed: the test rows are the same in every run."""


@DATA_SETS.register("scikit_learn")
class ScikitLearn(DataSpec):
    """Tables of scikit-learn: ``diabetes`` (a number for each patient), ``breast_cancer`` and ``wine``; no download.

    ``diabetes``: ten measurements of 442 patients, and the progression of the disease a year later (Efron, Hastie,
    Johnstone and Tibshirani 2004), for regression. ``breast_cancer``: 30 properties of the nuclei of cells in 569
    images, malignant or benign (Street, Wolberg and Mangasarian 1993). ``wine``: 13 measurements of 178 wines of three
    cultivars (Forina, Leardi, Armanino and Lanteri 1988).

    A random fifth of the rows is the test set. Columns have mean 0 and deviation 1 in the training set; so have the
    numbers that ``diabetes`` estimates, so an error of 1 is a deviation, 77 of the original unit.
    """

    name: Literal["scikit_learn"] = Field(default="scikit_learn", description="tables that scikit-learn contains")
    table: Literal["breast_cancer", "diabetes", "wine"] = Field(description="the table")

    def read(self) -> tuple[Samples, Samples]:
        """Inputs float32 ``[samples, columns]``, and classes or, of ``diabetes``, numbers ``[samples]``."""
        from sklearn import datasets

        if self.table == "diabetes" and self.task.classes:
            raise UserError("its labels are numbers; expected `task: regression` in the scenario", field="table")
        x, y = getattr(datasets, f"load_{self.table}")(return_X_y=True)
        order = generator(_SEED, "scikit-learn test").permutation(len(y))
        test, train = np.split(order, [int(TEST_SHARE * len(y))])
        x = _standardised(x, train)
        y = _standardised(y, train) if self.table == "diabetes" else y.astype(np.int64)
        return Samples(x[train], y[train]), Samples(x[test], y[test])


def _standardised(values: NDArray[Any], train: NDArray[np.int64]) -> NDArray[np.float32]:
    """Columns with mean 0 and standard deviation 1 over the training rows."""
    scaled: NDArray[np.float32] = ((values - values[train].mean(axis=0)) / values[train].std(axis=0)).astype(np.float32)
    return scaled
