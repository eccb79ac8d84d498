"""The connection to a Ray cluster: the one at ``RAY_ADDRESS`` if set, else one started on this machine."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import threading
from types import ModuleType

import torch

from edgefl.errors import UserError
from edgefl.training.processors import cores

RETRIES = 5
"""Retries on another worker after a task's worker was lost, before the task counts as failed."""


def connected() -> ModuleType:
    """The module ``ray``, connected to a cluster.

    It is the caller's cluster if there is one, else that of ``RAY_ADDRESS``, else a local one with this process's
    cores, which ends with the process. Ray's dashboard and usage reports stay off.

    Tasks whose results are no longer needed run to their end, or end with this process. They are not cancelled: if a
    task ends at the moment of its cancellation, an internal check of Ray (2.60) fails and aborts the calling process.

    Raises:
        UserError: Ray is not installed, or the cluster cannot be reached.
    """
    try:
        ray: ModuleType = importlib.import_module("ray")
    except ImportError:
        raise UserError(
            "Ray is not installed; expected the package ray, which comes with: pip install 'edgefl[ray]'",
            file="--engine ray",
        ) from None
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS")
    in_charge = threading.current_thread() is threading.main_thread()
    stopping = signal.getsignal(signal.SIGTERM) if in_charge else None
    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                address="local",
                num_cpus=cores(),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        where = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        raise UserError(f"{where} cannot be used: {reason}", file="--engine ray") from error
    finally:
        if in_charge:
            # Ray replaces the signal handler; restore the command's own one.
            signal.signal(signal.SIGTERM, stopping or signal.SIG_DFL)
    return ray


def needs(ray: ModuleType, device: torch.device) -> dict[str, object]:
    """The resources that a task requests: one CPU, or one GPU if it computes on GPUs.

    Raises:
        UserError: the cluster has no such resource.
    """
    kind, asked = ("CPU", "num_cpus") if device.type == "cpu" else ("GPU", "num_gpus")
    if not ray.cluster_resources().get(kind):
        raise UserError(f"the Ray cluster has no {kind} for training on {device.type}", file="--engine ray")
    amount: dict[str, object] = {"num_cpus": 0, asked: 1}
    # Without max_calls, Ray ends a worker that used a GPU after each task, and the next one imports PyTorch again.
    return {**amount, "max_calls": 0, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}
