"""Rounding decides nothing: transfers of 0.1 s and 0.7 s of training meet limits exactly, in each of 60 rounds."""

from collections import Counter

import numpy as np
import pytest

from edgefl.fleet.availability import Trace
from edgefl.network import Tcp, Transport
from edgefl.units import at_most

from .conftest import cells, device

QUICK = {"rates": [8e7] * 4, "devices": [device(2e9 / 0.7)] * 4, "rounds": 60, "cohort": 2}
CELLS = {**QUICK, "cohort": 4, "topology": cells([8e7] * 4, backhaul=(8e7, 8e7))}


def powered(joules=None, tail=None, charging=0.0):
    """A device that draws 1.8 J in a round of 0.9 s."""
    data = device(2e9 / 0.7).model_dump(mode="json", exclude_none=True)
    radio = {"active": 1.0, "energy_per_megabyte": 0.0}
    data["power"] = {"idle": 1.0, "compute": 2.0, "radio": {"down": radio, "up": radio, "promotion": 1.0}}
    if tail is not None:
        data["power"]["radio"]["tail"] = {"seconds": tail, "watts": 0.0}
    else:
        del data["power"]["radio"]["promotion"]
    if joules is not None:
        data["battery"] = {"capacity": joules, "charging": charging, "resume": 1.0}
    return type(device()).model_validate(data)


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        ({**QUICK, "protocol": {"deadline": 0.9}}, {2: 60}),
        ({**QUICK, "protocol": {"deadline": 0.9, "late": "partial"}}, {2: 60}),
        ({**QUICK, "protocol": {"deadline": {"kind": "adaptive", "deviations": 0}}}, {2: 60}),
        ({**QUICK, "budgets": {"seconds": 54.0}}, {2: 60}),
        ({**QUICK, "protocol": {"deadline": 0.5}, "rounds": 9, "budgets": {"seconds": 4.5}}, {0: 9}),
        ({**QUICK, "timeouts": {"transfer": 0.1, "retries": 0}}, {2: 60}),
        ({**QUICK, "protocol": {"over_select": 2.0}}, {4: 60}),
        ({**QUICK, "protocol": {"kind": "asynchronous", "concurrency": 4, "buffer": 4}}, {4: 60}),
        ({**CELLS, "protocol": {"kind": "hierarchical", "deadline": 1.0}}, {4: 60}),
        ({**CELLS, "protocol": {"kind": "hierarchical", "deadline": 1.0, "late": "partial"}}, {4: 60}),
        ({**QUICK, "failures": [{"kind": "crash", "client": client, "at": 8.1, "duration": 0.9} for client in range(4)],
          "cohort": 4, "rounds": 9}, {4: 9}),
        ({**QUICK, "devices": [powered(36.0)] * 4, "cohort": 4}, {4: 20}),
        ({**QUICK, "devices": [powered(5.4, charging=5.4)] * 4, "cohort": 4}, {4: 60}),
    ],
)  # fmt: skip
def test_what_is_there_at_the_instant_counts(run, settings, updates):
    rows = run(**settings).outcome.rows
    assert Counter(row.aggregated for row in rows) == updates


@pytest.mark.full
def test_windows_that_end_with_an_update(run, tmp_path):
    file = tmp_path / "windows.json"
    for seconds in (0.9, 2.7):
        file.write_text(f'[{{"duration": 1, "active": [0], "inactive": [{seconds}], "finish_time": {seconds + 0.9}}}]')
        availability = Trace(kind="trace", file=str(file), shift=False)
        result = run(**QUICK, fleet={"availability": (availability,)})
        assert Counter(row.aggregated for row in result.outcome.rows) == {2: 60}
        assert result.outcome.seconds == pytest.approx(0.9 * 60 + 0.9 * (60 / (seconds / 0.9) - 1), abs=1e-6)


@pytest.mark.full
def test_pauses_that_end_with_a_transfer(run):
    # The radio's tail, and a connection that is kept, end when the upload begins, or when it is picked again.
    result = run(**{**QUICK, "cohort": 4}, transport=Transport(tcp=Tcp(handshake="tcp", keep_alive=0.7)))
    assert Counter(event.facts["connection"]["setup"] for event in result.of("transfer_start")) == {0.0: 480}
    slow = {**QUICK, "latency": 0.01, "cohort": 4}
    result = run(**slow, transport=Transport(tcp=Tcp(handshake="tcp", keep_alive=0.7)))
    assert sum(event.facts["connection"]["setup"] > 0 for event in result.of("transfer_start")) == 4
    result = run(**{**QUICK, "cohort": 4, "devices": [powered(tail=0.7)] * 4})
    assert len(result.of("radio", item="promotion")) == 4


def test_the_tolerance_is_a_nanosecond_or_a_small_part_of_the_time_of_day(run):
    assert [at_most(0.9 + more, 0.9) for more in (0.9e-9, 1.1e-9)] == [True, False]
    assert [at_most(1e6 + more, 1e6) for more in (0.9e-4, 1.1e-4)] == [True, False]
    late = run(**{**QUICK, "protocol": {"deadline": 0.9 - 1e-8}, "rounds": 20})
    assert {row.aggregated for row in late.outcome.rows} == {0}
    assert np.allclose(np.diff([row.seconds for row in late.outcome.rows]), 0.9 - 1e-8, rtol=0, atol=1e-12)
