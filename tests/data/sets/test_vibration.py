import numpy as np
import pytest

from edgefl.data.sets import vibration
from edgefl.data.sets.vibration import CONDITIONS, LENGTH, RATE, Vibration, _Machine, _window
from edgefl.randomness import generator


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
