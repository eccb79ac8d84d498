"""Data sets that are made up or come with scikit-learn."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_diabetes, load_digits, load_wine

from edgefl.data.dataset import channel_statistics
from edgefl.data.sets import vibration
from edgefl.data.sets.digits import Digits, warped
from edgefl.data.sets.scikit_learn import ScikitLearn
from edgefl.data.sets.synthetic import Synthetic
from edgefl.data.sets.vibration import CONDITIONS, LENGTH, RATE, Vibration, _Machine, _window
from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.tasks.regression import Regression


def test_sizes_and_shapes_are_those_asked_for():
    spec = Synthetic(shape=(3, 9, 7), classes=4, train=41, test=10, clients=4)
    train, test = spec.read()
    assert train.inputs.shape == (41, 3, 9, 7)
    assert test.inputs.shape == (10, 3, 9, 7)
    assert np.bincount(train.labels).tolist() == list(spec.declared().train)
    assert np.bincount(test.labels).tolist() == list(spec.declared().test)


def test_the_nearest_class_mean_tells_the_classes_apart_but_a_single_pixel_does_not():
    train, test = Synthetic(train=2000, test=1000).read()
    means = np.stack([train.inputs[train.labels == label].mean(axis=0).ravel() for label in range(10)])
    flat = test.inputs.reshape(1000, -1).astype(float)
    nearest = ((flat[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == test.labels).mean() > 0.95
    pixel = np.abs(flat[:, None, 300] - means[None, :, 300]).argmin(axis=1)
    assert (pixel == test.labels).mean() < 0.5


def test_machines_own_their_windows_and_mostly_show_one_fault():
    spec = Vibration(machines=9, windows=200, clients=9)
    train, test = spec.samples()
    assert train.inputs.shape == (9 * 160, 3, 128)
    assert test.inputs.shape == (9 * 40, 3, 128)
    assert np.bincount(train.owner).tolist() == [160] * 9
    assert np.bincount(test.owner).tolist() == [40] * 9
    for machine in range(9):
        counts = np.bincount(train.labels[train.owner == machine], minlength=4)
        assert 0.35 < counts[0] / 160 < 0.65
        assert counts[1:].argmax() == machine % 3


def test_a_machine_is_the_same_whatever_others_there_are():
    few, many = (Vibration(machines=machines, windows=20, clients=2).read()[0] for machines in (2, 4))
    assert (few.inputs == many.inputs[: len(few.inputs)]).all()


def spectrum(condition, monkeypatch, axis):
    """The mean power of a machine's windows without noise by frequency, with what the machine is."""
    monkeypatch.setattr(vibration, "NOISE", 0.0)
    machine = _Machine(30.0, 400.0, 1.0, 0.8, np.array([0.6, 0.6, 0.5]))
    rng = generator(0, "test")
    windows = np.stack([_window(machine, condition, rng) for _ in range(50)])[:, axis]
    power = (np.abs(np.fft.rfft(windows * np.hanning(LENGTH))) ** 2).mean(axis=0)
    return power, np.fft.rfftfreq(LENGTH, 1 / RATE)


@pytest.mark.parametrize(
    ("condition", "axis", "peak"),
    [("healthy", 0, 30), ("imbalance", 0, 30), ("misalignment", 2, 60), ("bearing", 0, 400)],
)
def test_each_condition_has_its_frequency(condition, axis, peak, monkeypatch):
    power, frequency = spectrum(condition, monkeypatch, axis)
    passing = 9 * 30 * 0.8 / 2  # the lines of a bearing are multiples of this
    assert abs(frequency[power.argmax()] - peak) <= (passing / 2 if condition == "bearing" else RATE / LENGTH)


def test_impulses_come_at_the_ball_pass_frequency():
    machine = _Machine(20.0, 500.0, 1.0, 0.8, np.ones(3))
    envelope = np.zeros(LENGTH // 2 + 1)
    rng = generator(0, "test")
    for _ in range(50):
        answers = np.abs(vibration._impulses(machine, np.arange(LENGTH) / RATE, rng))
        envelope += np.abs(np.fft.rfft((answers - answers.mean()) * np.hanning(LENGTH)))
    low = np.fft.rfftfreq(LENGTH, 1 / RATE) < 150
    assert abs(np.fft.rfftfreq(LENGTH, 1 / RATE)[low][envelope[low].argmax()] - 72) <= RATE / LENGTH


def test_a_number_is_a_multiple_of_the_sensors_step():
    inputs = Vibration(machines=2, windows=10, clients=2).read()[0].inputs
    assert (inputs * 1024 == np.rint(inputs * 1024)).all()
    assert len(CONDITIONS) == 4


@pytest.fixture(scope="module")
def parts():
    return Digits().read()


def centres(images):
    """Every third pixel lies on the centre of an original's pixel."""
    return images[:, 0, 3:25:3, 3:25:3]


def test_the_sizes_are_those_declared(parts):
    declared = Digits().declared()
    for part, sizes in zip(parts, (declared.train, declared.test), strict=True):
        assert part.inputs.shape == (sum(sizes), *declared.shape)
        assert part.inputs.dtype == np.uint8
        assert np.bincount(part.labels).tolist() == list(sizes)
    mean, std = channel_statistics(parts[0])
    assert declared.mean == pytest.approx(mean, abs=1e-4)
    assert declared.std == pytest.approx(std, abs=1e-4)


def test_test_images_are_originals_only_enlarged_and_none_of_them_is_trained_on(parts):
    train, test = parts
    originals = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    _, first = np.unique(train.origin, return_index=True)
    used = [*centres(test.inputs), *centres(train.inputs[first])]
    assert Counter(image.tobytes() for image in used) == Counter(image.tobytes() for image in originals)


def test_every_training_original_has_about_ten_different_images_of_its_class(parts):
    train = parts[0]
    names, copies = np.unique(train.origin, return_counts=True)
    assert len(names) == 1797 - 600
    assert copies.min() >= 9
    assert copies.max() <= 11
    assert (train.labels == load_digits().target[train.origin]).all()
    assert len({image.tobytes() for image in train.inputs}) > 0.999 * len(train.inputs)


def test_the_same_bytes_come_out_everywhere(parts):
    assert hashlib.sha256(parts[0].inputs.tobytes()).hexdigest().startswith("692cafdbeadb8928")
    assert hashlib.sha256(parts[1].inputs.tobytes()).hexdigest().startswith("cee87518fcb66f0c")


def test_integer_sampling_is_bilinear_interpolation():
    rng = np.random.default_rng(0)
    originals = rng.integers(0, 17, (50, 8, 8))
    maps = np.concatenate([rng.normal(0, 0.3, (50, 2, 2)), rng.normal(0, 2, (50, 2, 1))], axis=2)
    offset = np.arange(28) - 13.5
    row, column = np.meshgrid(offset, offset, indexing="ij")
    for original, matrix, ours in zip(originals, maps, warped(originals, maps), strict=True):
        points = [a * row + b * column + c + 3.5 for a, b, c in matrix]
        expected = map_coordinates(np.pad(original, 1) * 255 / 16, [p + 1 for p in points], order=1, cval=0.0)
        # Positions are rounded to 1/256 of a pixel, on each axis, and values to whole numbers.
        assert np.abs(ours - expected).max() <= 255 * 2 / 256 + 1


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
