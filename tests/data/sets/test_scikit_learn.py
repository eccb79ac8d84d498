import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine

from edgefl.data.sets.scikit_learn import ScikitLearn
from edgefl.errors import UserError
from edgefl.tasks.regression import Regression


def diabetes() -> ScikitLearn:
    return ScikitLearn(table="diabetes", clients=10).for_task(Regression())


@pytest.mark.parametrize(("table", "rows", "columns", "classes"), [("breast_cancer", 569, 30, 2), ("wine", 178, 13, 3)])
def test_a_table_of_classes(table, rows, columns, classes):
    spec = ScikitLearn(table=table, clients=5)
    train, test = spec.samples()
    assert train.inputs.shape[1:] == test.inputs.shape[1:] == (columns,)
    assert len(train.labels) + len(test.labels) == rows
    assert len(test.labels) == rows // 5
    assert spec.describe().classes == classes
    assert spec.describe().kind == "numbers"


def test_constants_are_those_of_the_training_rows_only():
    train, test = diabetes().samples()
    for values in (train.inputs, train.labels):
        assert np.allclose(values.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(values.std(axis=0), 1, atol=1e-4)
    assert not np.allclose(test.inputs.mean(axis=0), 0, atol=1e-3)
    x, y = load_diabetes(return_X_y=True)
    found = np.concatenate([train.labels, test.labels]).ravel()
    assert np.corrcoef(np.sort(found), np.sort(y))[0, 1] > 0.999999
    assert len(x) == len(found)


def test_rows_keep_their_labels_and_the_split_is_fixed():
    train, _ = ScikitLearn(table="wine", clients=5).samples()
    again = ScikitLearn(table="wine", clients=7).samples()
    assert (train.inputs == again[0].inputs).all()
    x, y = load_wine(return_X_y=True)
    alcohol = {label: x[y == label, 0].mean() for label in range(3)}
    found = {label: train.inputs[train.labels == label, 0].mean() for label in range(3)}
    assert sorted(alcohol, key=alcohol.get) == sorted(found, key=found.get)


def test_numbers_are_no_classes():
    with pytest.raises(UserError, match="expected `task: regression`") as found:
        ScikitLearn(table="diabetes", clients=5).samples()
    assert found.value.field == "table"
