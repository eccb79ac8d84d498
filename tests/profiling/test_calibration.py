"""A log that a known device and link produced gives them back, and a simulation with them takes the log's seconds."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.fleet import load_profile, read_profile, step_seconds
from edgefl.fleet.profile import DeviceProfile
from edgefl.network.tcp import Opening
from edgefl.profiling.calibration import COLUMNS, ClientLog, calibrate, predicted, profile_data, read_client_log
from edgefl.record.tables import read_events
from edgefl.scenario import load_scenario, resolve
from edgefl.yaml_file import dump_yaml

SIZES = np.array([400_000, 800_000, 1_600_000])


def log_of(rounds, *, seconds=0.4, down=24e6, up=8e6, delay=0.05, sigma=0.0, sizes=SIZES, seed=0):
    """The log of a client with this truth; capacities and computing vary independently with the same sigma."""
    normal = np.random.default_rng(seed).standard_normal((3, rounds))
    bytes_down, bytes_up = np.resize(sizes, rounds), np.resize(sizes[::-1], rounds)
    return ClientLog(
        download_seconds=delay + 8 * bytes_down / (down * np.exp(sigma * normal[0])),
        compute_seconds=seconds * np.exp(sigma * normal[1] - sigma**2 / 2),
        upload_seconds=delay + 8 * bytes_up / (up * np.exp(sigma * normal[2])),
        bytes_down=bytes_down.astype(float),
        bytes_up=bytes_up.astype(float),
    )


def write(log, file):
    columns = [np.arange(1, log.rounds + 1), *(getattr(log, name) for name in COLUMNS[1:])]
    rows = [",".join(f"{value:.9g}" for value in row) for row in zip(*columns, strict=True)]
    file.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    return file


@settings(max_examples=10)
@given(
    seconds=st.floats(1e-3, 1e4),
    down=st.floats(1e5, 1e9),
    up=st.floats(1e5, 1e9),
    share=st.floats(0.05, 3),
    rounds=st.integers(6, 40),
)
def test_without_variation_the_truth_comes_back(seconds, down, up, share, rounds):
    delay = share * 8 * SIZES[0] / max(down, up)
    found = calibrate(log_of(rounds, seconds=seconds, down=down, up=up, delay=delay), delay=delay)
    assert found.compute.mean == pytest.approx(seconds)
    assert (found.down.bits_per_second, found.up.bits_per_second) == pytest.approx((down, up), rel=0.02)
    assert found.compute.sigma == 0


@pytest.mark.parametrize(("sigma", "seed"), [(0.05, 0), (0.15, 1), (0.3, 2)])
def test_with_variation_the_truth_comes_back_within_four_standard_errors(sigma, seed):
    """The delay is given, as by a ping, so the logarithms of the capacities are normal with this sigma."""
    rounds = 400
    found = calibrate(log_of(rounds, sigma=sigma, seed=seed), delay=0.05)
    mean_error, sigma_error = 4 * sigma / rounds**0.5, 4 * sigma / (2 * rounds) ** 0.5
    for fitted, truth in (
        (found.compute.mean, 0.4),
        (found.down.bits_per_second, 24e6),
        (found.up.bits_per_second, 8e6),
    ):
        assert abs(np.log(fitted / truth)) < mean_error
    for fitted in (found.compute.sigma, found.down.sigma, found.up.sigma):
        assert abs(fitted - sigma) < sigma_error + 0.02 * sigma


def test_outliers_change_nothing_and_are_counted():
    clean = log_of(30, sigma=0.1)
    found = calibrate(clean, delay=0.05)
    disturbed = log_of(30, sigma=0.1)
    for column, row in ((disturbed.compute_seconds, 3), (disturbed.download_seconds, 7), (disturbed.upload_seconds, 7)):
        column[row] *= 40
    there = calibrate(disturbed, delay=0.05)
    assert (there.compute.outliers, there.down.outliers, there.up.outliers) == (1, 1, 1)
    assert there.compute.mean == pytest.approx(found.compute.mean, rel=0.02)
    assert there.down.bits_per_second == pytest.approx(found.down.bits_per_second, rel=0.02)
    assert there.up.sigma == pytest.approx(found.up.sigma, rel=0.2)


def test_the_prediction_is_the_sum_of_the_steps_of_the_clients_batches(small):
    scenario = small()
    board = load_profile("raspberry-pi-4")
    found = predicted(scenario, "fedavg", board, samples=40)
    from edgefl.experiment.wiring import step_costs

    costs = step_costs(scenario, ["fedavg"])["fedavg"]
    by_hand = sum(step_seconds(board, costs.step(4, size).operators) for size in (16, 16, 8))
    assert (found.seconds, found.steps) == (pytest.approx(by_hand), 3)
    assert predicted(scenario, "fedavg", board).samples == 320 // 8
    given = small(cost={"kind": "seconds", "methods": {"fedavg": "4 s"}})
    with pytest.raises(UserError, match=r"cost.kind: expected kind: measured or paper"):
        predicted(given, "fedavg", board)


TCP = {"kind": "tcp", "handshake": "tls", "initial_window": 4}


def log_over_tcp(transport, *, down=2e6, up=1e6, latency=0.05, sizes=SIZES):
    """The log of a client whose transfers have these payload rates and open a connection each."""
    log = log_of(9, sizes=sizes)
    opening = Opening(transport.tcp.round_trips(repeated=True))

    def seconds(rate, bytes):
        capacity = rate / transport.efficiency
        return np.array([transport.alone(latency, capacity, opening).seconds(float(each)) for each in bytes])

    return replace(log, download_seconds=seconds(down, log.bytes_down), upload_seconds=seconds(up, log.bytes_up))


def test_the_rates_of_tcp_transfers_come_back(small):
    transport = small(network__transport=TCP).network.transport.build()
    log = log_over_tcp(transport)
    found = calibrate(log, delay=0.05, transport=transport)
    assert (found.down.bits_per_second, found.up.bits_per_second) == pytest.approx((2e6, 1e6))
    plain = calibrate(log, delay=0.05)
    assert plain.down.bits_per_second < 0.97 * 2e6  # as if slow start and set-up were a lower rate
    with pytest.raises(UserError, match=r"--latency: with this latency, a transfer over TCP takes at least 17"):
        calibrate(log, delay=0.9, transport=transport)
    kept = small(network__transport=TCP | {"keep_alive": "1 min"}).network.transport.build()
    with pytest.raises(UserError, match=r"network.transport.keep_alive: expected keep_alive: 0"):
        calibrate(log, delay=0.05, transport=kept)


def test_a_calibrated_profile_keeps_the_evidence_of_its_other_figures(small):
    base = load_profile("raspberry-pi-4").model_dump(mode="json", exclude_none=True)
    meter = {"kind": "measured", "source": "a power meter"}
    base["provenance"]["evidence"] |= {"power": meter, "compute.step_overhead": meter}
    board, log = DeviceProfile.model_validate(base), log_of(10)
    training = predicted(small(), "fedavg", board)
    made = profile_data(
        board, calibrate(log), training, name="made", source="client.csv", rounds=10, today=date(2026, 1, 2)
    )
    evidence = made["provenance"]["evidence"]
    assert evidence["power"] == meter
    assert set(evidence) == {"power", "compute"}
    assert (evidence["compute"]["kind"], evidence["compute"]["count"]) == ("fitted", 10)
    assert "times its seconds" in made["provenance"]["derivation"]["compute.operator_rates"]


def test_a_delay_longer_than_the_transfers_is_refused():
    with pytest.raises(UserError, match=r"--latency: expected a delay shorter than the transfers"):
        calibrate(log_of(10), delay=10)


@pytest.mark.parametrize(
    "change",
    [lambda text: "\ufeff" + text.replace("\n", "\r\n"), lambda text: text.replace(",", ";").replace(".", ",")],
)
def test_a_log_of_a_spreadsheet_is_read_as_well(tmp_path, change):
    log = log_of(5)
    file = write(log, tmp_path / "client.csv")
    text = change(file.read_text())
    file.write_text(text, encoding="utf-8")
    assert read_client_log(file).download_seconds == pytest.approx(log.download_seconds)


@pytest.mark.parametrize(("sigma", "rounds"), [(0.0, 3), pytest.param(0.2, 300, marks=pytest.mark.full)])
def test_a_simulation_of_the_written_files_takes_the_seconds_of_the_log(small, tmp_path, sigma, rounds, capsys):
    """One client at a time, so that no other transfer shares its path."""
    scenario = small(training__rounds=rounds, training__cohort=1)
    (tmp_path / "alone.yaml").write_text(dump_yaml(resolve(scenario)))
    first = run(small(training__rounds=1, training__cohort=1), out=tmp_path / "first", train=False)
    events = read_events(first / "fedavg" / "seed-0" / "events.parquet", ("transfer_end",))
    bytes = next(event.bytes for event in events)
    assert predicted(scenario, "fedavg", load_profile("raspberry-pi-4")).bytes_down == bytes
    log = log_of(200, seconds=1.3, down=6e5, up=3e5, sigma=sigma, sizes=np.array([bytes]))
    file = write(log, tmp_path / "client.csv")
    command = ["profile", "calibrate", str(file), "--scenario", str(tmp_path / "alone.yaml"), "--latency", "50 ms"]
    assert main([*command, "--like", "raspberry-pi-4", "-o", str(tmp_path / "calibrated")]) == 0
    printed = capsys.readouterr().out
    mean = log.compute_seconds.mean()
    assert "200 rounds of fedavg: 40 samples, 3 steps each" in " ".join(printed.split())
    assert f"training {mean:.3g} s" in " ".join(printed.split())
    profile = read_profile(tmp_path / "calibrated" / "profile.yaml")
    assert (profile.evidence("compute.fp32_achievable").kind, profile.evidence("compute").count) == ("fitted", 200)
    assert "client.csv" in profile.provenance.sources[0]
    assert profile.compute.jitter == pytest.approx(sigma, abs=0.03)
    folder = run(load_scenario(tmp_path / "calibrated" / "scenario.yaml"), out=tmp_path / "run", train=False)
    found = {"down": [], "up": [], "": []}
    for event in read_events(folder / "fedavg" / "seed-0" / "events.parquet", ("transfer_end", "compute_end")):
        found[event.item if event.kind == "transfer_end" else ""].append(event.seconds)
    for item, logged in (("down", log.download_seconds), ("", log.compute_seconds), ("up", log.upload_seconds)):
        assert len(found[item]) == rounds
        assert np.mean(found[item]) == pytest.approx(logged.mean(), rel=0.05 if sigma else 1e-3)
        assert np.log(found[item]).std() == pytest.approx(np.log(logged).std(), abs=0.05)


@pytest.mark.parametrize(
    ("seconds", "bytes", "told"),
    [
        (1, 1, []),
        (1e3, 1, ["down: 0.024 Mbit/s is slow for a link", "up: 0.008 Mbit/s is slow for a link"]),
        (1, 1e-3, ["down: 1.1 B in a round, the scenario's model has 1.07 kB", "up: 1.1 B in a round"]),
        (1, 4, ["down: 4.29 kB in a round, the scenario's model has 1.07 kB", "up: 4.29 kB in a round"]),
    ],
)
def test_transfers_in_other_units_and_of_another_scenario_are_doubted(small, tmp_path, capsys, seconds, bytes, told):
    scenario = small()
    found = predicted(scenario, "fedavg", load_profile("raspberry-pi-4"))
    log = log_of(5, delay=0, sizes=np.array([found.bytes_down]))
    log = replace(
        log,
        download_seconds=log.download_seconds * seconds,
        upload_seconds=log.upload_seconds * seconds,
        bytes_down=log.bytes_down * bytes,
        bytes_up=log.bytes_up * bytes,
    )
    file = write(log, tmp_path / "client.csv")
    places = ["--scenario", str(tmp_path / "small.yaml"), "--like", "raspberry-pi-4", "-o", str(tmp_path / "made")]
    assert main(["profile", "calibrate", str(file), *places]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "compute_seconds" not in line]
    assert len(lines) == len(told)
    assert all(part in line for part, line in zip(told, lines, strict=True)), lines


HEADER = ",".join(COLUMNS)
ROW = "0.3,0.4,0.5,1000,1000"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected one column 'round', found: nothing"),
        (f"{HEADER}\n1,{ROW}\n", "expected at least 3 rounds, found 1"),
        (f"{HEADER.replace('upload_seconds', 'up')}\n1,{ROW}\n", "expected one column 'upload_seconds', found: round"),
        (
            f"{HEADER}\n1,{ROW}\n2,0.3,-0.4,0.5,1000,1000\n",
            "line 3: compute_seconds: expected a number above 0, found '-0.4'",
        ),
        (f"{HEADER}\n1,0.3,0.4\n", "line 2: expected 6 values, found 3"),
        (f"{HEADER}\n1,{ROW}\n1,{ROW}\n2,{ROW}\n", "expected each round once: a file has the rounds of one client"),
    ],
)
def test_a_wrong_log_is_refused_in_one_sentence(tmp_path, text, told):
    file = tmp_path / "client.csv"
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        read_client_log(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--method", "fedavgg"], "the scenario 'small' has no method labelled 'fedavgg'; did you mean 'fedavg'?"),
        (["--latency", "soon"], "--latency: expected seconds such as '20 ms', found 'soon'"),
        (["-o", "."], "expected a folder that does not exist yet"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(small, tmp_path, capsys, options, told):
    small()
    file = write(log_of(10), tmp_path / "client.csv")
    places = ["--scenario", str(tmp_path / "small.yaml"), "--like", "raspberry-pi-4", "-o", str(tmp_path / "made")]
    assert main(["profile", "calibrate", str(file), *places, *options]) == 2
    error = capsys.readouterr().err
    assert told in " ".join(error.split())
    assert error.count("\n") == 1
    assert not (tmp_path / "made").exists()
