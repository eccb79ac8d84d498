from __future__ import annotations

from edgefl.emulation.arrangement import MOST_CLIENTS, RANDOM_BYTES, content_of, taking_part
from edgefl.experiment import run
from edgefl.record.paths import RunPaths, SeedPaths
from edgefl.record.tables import read_events
from edgefl.scenario.loading import check

from .campaign import scenarios


class Fleet:
    """A run's setup with this number of clients."""

    def __init__(self, clients: int) -> None:
        self.clients = clients


def test_transfers_carry_the_simulated_model_and_random_bytes_without_one(tmp_path):
    assert len(content_of(SeedPaths(tmp_path))) == RANDOM_BYTES
    (tmp_path / "final.safetensors").write_bytes(b"model")
    assert content_of(SeedPaths(tmp_path)) == b"model"


def test_of_a_large_fleet_only_clients_that_took_part_get_a_process(tmp_path):
    data = scenarios()["star"]
    data["data"]["clients"] = 2 * MOST_CLIENTS
    out = run(check(data), out=tmp_path / "run", train=False)
    paths = RunPaths(out).of("fedavg", 0)
    selected = {event.client for event in read_events(paths.events, {"compute_end"})}
    assert taking_part(Fleet(2 * MOST_CLIENTS), paths) == sorted(selected)
    assert taking_part(Fleet(3), paths) == [0, 1, 2]
