"""The setup of a finished run that is simulated again under other conditions, with its recorded training."""

from __future__ import annotations

from dataclasses import replace

from edgefl.experiment.recording import Recording
from edgefl.experiment.wiring import SharedWorld, setup_of
from edgefl.network.build import build_topology
from edgefl.network.client_links import ClientLinks
from edgefl.network.topology import scale_topology
from edgefl.record.listener import Listener
from edgefl.rerun.finished_run import FinishedRun
from edgefl.rerun.replayed_learner import ReplayedLearner
from edgefl.simulation.setup import Setup
from edgefl.training.job import Learner
from edgefl.training.neutral import NeutralLearner


def retimed_setup(
    run: FinishedRun,
    label: str,
    recording: Recording,
    *,
    world: SharedWorld,
    links: ClientLinks,
    listener: Listener,
    bandwidth: float = 1.0,
    draw: int = 0,
) -> Setup:
    """Return the setup of one method with one seed, which no budget ends; it writes nothing.

    Args:
        run: the finished run.
        label: the method.
        recording: its recorded training; without any, placeholders stand for its numbers.
        world: the run's fleet and shards, with changes that do not affect training.
        links: the run's capacities of the clients' links.
        listener: follows the run.
        bandwidth: factor on the capacity of every link.
        draw: which draw of the shares in queues; 0 is the run's own.
    """
    costs, scenario = run.costs[label], run.scenario
    learner: Learner = NeutralLearner()
    if recording.evaluations:
        learner = ReplayedLearner(recording, label, stateful=costs.method.state is not None)
    method = scenario.method(label)
    topology = build_topology(
        scenario.network.topology, scenario.network.links, [str(name) for name in world.fleet.link_names()]
    )
    scale_topology(topology, bandwidth)
    setup = setup_of(
        scenario,
        method,
        world,
        costs,
        learner=learner,
        trains=False,
        listeners=[listener],
        client_links=links.scaled(bandwidth),
    )
    transport = setup.transport
    if transport.queue is not None:
        transport = replace(transport, queue=replace(transport.queue, draw=draw))
    return replace(setup, stop="rounds", topology=topology, transport=transport)
