"""Jobs spread over two real Ray nodes on this machine come to the sequential engine's bits, also when one is lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from edgefl.errors import UserError
from edgefl.methods.parts.objective import Batch
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import ENGINES, EngineInputs
from edgefl.training.engines.ray import connected
from edgefl.training.faults import TrainingFault

from .conftest import same, train_rounds

pytestmark = [pytest.mark.extras, pytest.mark.full]

HEALTH = {"health_check_period_ms": 1000, "health_check_timeout_ms": 5000, "health_check_failure_threshold": 2}
"""How soon a node counts as lost; Ray's own setting is half a minute."""


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a processor each; the caller's connection is the one that engines take."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**nodes, "_system_config": HEALTH})
    os.environ["RAY_ADDRESS"] = made.address
    try:
        stopping = signal.getsignal(signal.SIGTERM)
        connected()
        assert signal.getsignal(signal.SIGTERM) == stopping
        # Only now, so that this process belongs to the head.
        made.add_node(num_cpus=1, object_store_memory=nodes["object_store_memory"])
        # Tests are no modules that a worker could import.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        del os.environ["RAY_ADDRESS"]


@pytest.fixture
def data(tiny):
    """The tiny data set, in a form that workers can be sent."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[tiny.data.__module__])
    return tiny.data()


class Passed:
    """The data of another object."""

    def __init__(self, data):
        self._data = data

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._data, name)


class Deadly(Passed):
    """Data whose first reader does not live: it is killed, or waits on its node until that is lost."""

    def __init__(self, data, marker, spared=None):
        super().__init__(data)
        self._marker = marker
        self._spared = spared

    def batches(self, task):
        import ray

        node = ray.get_runtime_context().get_node_id()
        if self._spared is not None and node != self._spared and not self._marker.exists():
            self._marker.touch()
            time.sleep(60)
        while self._spared is not None and not self._marker.exists():
            time.sleep(0.05)  # until the other node has begun, too
        for number, batch in enumerate(self._data.batches(task)):
            if number == 1 and self._spared is None and not self._marker.exists():
                self._marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


def reference(tiny, method):
    with tiny.core("sequential") as core:
        return train_rounds(core, tiny.method(method))


def on_ray(tiny, data, method):
    with TrainingCore(data, tiny.model(), 3, engine="ray") as core:
        return train_rounds(core, tiny.method(method))


@pytest.mark.parametrize("method", ["fedavg", "fedmlb", "scaffold", "fedbr"])
def test_two_nodes_come_to_the_sequential_bits(cluster, tiny, data, method):
    assert same(on_ray(tiny, data, method), reference(tiny, method))


def test_a_killed_workers_job_is_done_by_another(cluster, tiny, data, tmp_path):
    marker = tmp_path / "killed"
    found = on_ray(tiny, Deadly(data, marker), "fedavg")
    assert marker.exists()
    assert same(found, reference(tiny, "fedavg"))


def test_a_lost_nodes_jobs_are_done_on_the_others(cluster, tiny, data, tmp_path):
    import ray

    marker = tmp_path / "reached"
    (node,) = cluster.worker_nodes
    here = ray.get_runtime_context().get_node_id()

    def lose():
        for _ in range(400):
            if marker.exists():
                cluster.remove_node(node, allow_graceful=False)
                return
            time.sleep(0.05)

    losing = threading.Thread(target=lose, daemon=True)
    losing.start()
    found = on_ray(tiny, Deadly(data, marker, spared=here), "fedavg")
    losing.join(timeout=30)
    cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    assert marker.exists()
    assert same(found, reference(tiny, "fedavg"))


class Broken(Passed):
    """Data whose second batch cannot be made for client 4."""

    def batches(self, task):
        for number, batch in enumerate(self._data.batches(task)):
            yield Batch(batch.inputs[:, :, :1], batch.labels) if (task.client, number) == (4, 1) else batch


def test_a_failing_step_names_method_client_and_step_and_the_other_jobs_end_by_themselves(
    cluster, tiny, data, monkeypatch
):
    import ray

    # It aborts the process where a task ends in the moment in which it is cancelled.
    monkeypatch.setattr(ray, "cancel", lambda *arguments, **options: pytest.fail("Ray's cancelling is not safe"))
    with pytest.raises(TrainingFault) as caught:
        on_ray(tiny, Broken(data), "fedavg")
    fault = caught.value
    assert (fault.method, fault.client, fault.round, fault.step) == ("fedavg", 4, 0, 1)
    assert same(on_ray(tiny, data, "fedavg"), reference(tiny, "fedavg"))


def test_a_cluster_without_gpus_is_refused_for_cuda(cluster, tiny, data):
    device = torch.device("cuda")
    with pytest.raises(UserError, match="no GPU"):
        ENGINES["ray"].build(EngineInputs(tiny.model(), data, device))


def test_a_local_cluster_is_started_where_none_is_named_and_ends_with_the_process():
    pytest.importorskip("ray", reason="Ray is not installed")
    program = (
        "from edgefl.training.engines.ray import connected\n"
        "ray = connected()\n"
        "print(ray.get(ray.remote(lambda: 7).remote()), ray._private.worker._global_node.get_session_dir_path())\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    answer, session = done.stdout.split()
    assert answer == "7"
    deadline = time.monotonic() + 20
    while _processes_of(session) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not _processes_of(session)


def _processes_of(session):
    """Processes whose command line names the session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if session.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found
