"""What is particular to CUDA devices, with PyTorch's functions for them replaced: the device, the failure."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from edgefl.training import accelerator
from edgefl.training.evaluation import batch_on
from edgefl.training.ray.cluster import needs

SECOND = torch.device("cuda", 1)


class Driver:
    """Keeps the current device, and notes the device of each graph that is recorded or launched."""

    def __init__(self, monkeypatch) -> None:
        self.current, self.recorded, self.launched = 0, [], []
        driver = self

        class CUDAGraph:
            def replay(self):
                driver.launched.append(driver.current)

        @contextmanager
        def device(which):
            before, self.current = self.current, which.index
            try:
                yield
            finally:
                self.current = before

        @contextmanager
        def graph(_, pool):
            self.recorded.append(self.current)
            yield

        parts = {"CUDAGraph": CUDAGraph, "device": device, "graph": graph}
        parts |= {"synchronize": lambda: None, "current_device": lambda: self.current}
        for name, part in parts.items():
            monkeypatch.setattr(torch.cuda, name, part)
        monkeypatch.setattr(accelerator, "_pool", lambda device: None)


def test_graphs_are_recorded_and_launched_on_the_device_of_their_memory(monkeypatch):
    driver = Driver(monkeypatch)
    replay = accelerator.recorded(lambda: None, SECOND)
    replay()
    assert (driver.recorded, driver.launched, driver.current) == ([1], [1], 0)


def test_a_failed_recording_is_reported_with_its_reason(monkeypatch):
    Driver(monkeypatch)

    def step():
        raise RuntimeError("operation not permitted when stream is capturing\nand a long explanation")

    with pytest.warns(UserWarning, match="cannot be recorded as a CUDA graph.*operation not permitted") as said:
        assert accelerator.recorded(step, SECOND) is None
    assert "long explanation" not in str(said[0].message)


def test_evaluation_batches_are_larger_on_an_accelerator():
    assert (batch_on(torch.device("cpu")), batch_on(SECOND)) == (128, 1024)


def test_a_worker_of_ray_on_a_gpu_stays_for_further_jobs():
    class Cluster:
        @staticmethod
        def cluster_resources():
            return {"CPU": 4.0, "GPU": 1.0}

    asked = needs(Cluster, SECOND)
    assert (asked["num_gpus"], asked["num_cpus"], asked["max_calls"]) == (1, 0, 0)
