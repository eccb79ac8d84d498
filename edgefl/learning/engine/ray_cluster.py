"""A Ray cluster as a place of work: joined where ``RAY_ADDRESS`` names one, else started on this machine."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import ModuleType

import torch

from edgefl.errors import UserError
from edgefl.learning.engine.processors import cores

RETRIES = 5
"""How often work is given to another worker after its own was lost, before it counts as failed."""


def joined() -> ModuleType:
    """The module ``ray``, connected to a cluster.

    It is the caller's cluster if there is one, else that of ``RAY_ADDRESS``, else a local one with this process's
    cores, which ends with the process. Ray's dashboard and its reports to its makers stay off.

    Work that nobody waits for any more is left to end by itself, or with this process. It is not cancelled: where a
    task ends in the moment in which it is cancelled, Ray (2.60) finds its own books wrong and aborts the process that
    asked.

    Raises:
        UserError: Ray is not installed, or the cluster cannot be reached.
    """
    try:
        import ray
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
            # Ray takes the signal for itself; the command's own way to stop is restored.
            signal.signal(signal.SIGTERM, stopping or signal.SIG_DFL)
    return ray


def needs(ray: ModuleType, device: torch.device) -> dict[str, object]:
    """What a piece of work asks the cluster for: one CPU, or one GPU where it computes on those.

    Args:
        ray: the connected module.
        device: where the work computes.

    Raises:
        UserError: the cluster has nothing of the kind.
    """
    kind, asked = ("CPU", "num_cpus") if device.type == "cpu" else ("GPU", "num_gpus")
    if not ray.cluster_resources().get(kind):
        raise UserError(f"the Ray cluster has no {kind} for training on {device.type}", file="--engine ray")
    amount: dict[str, object] = {"num_cpus": 0, asked: 1}
    return {**amount, "max_retries": RETRIES, "scheduling_strategy": "SPREAD"}
