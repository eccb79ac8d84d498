"""Losses and models that write where they must not, and what is left of everybody else's numbers afterwards."""

import torch
import torch.nn.functional as F
from torch import nn

from edgefl.methods.build import build_method
from edgefl.methods.client_state import ClientState, StatesTogether
from edgefl.methods.local_options import LocalOptions
from edgefl.methods.objectives.base import Loss, Objective
from edgefl.methods.payloads.extra_vector import ScaffoldPayload
from edgefl.methods.recipe import Method
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.scaffold import ControlVariate, Scaffold
from edgefl.models.block_model import BlockModel
from edgefl.training.core import TrainingCore
from edgefl.training.faults import PartFault, blaming
from edgefl.training.job import JobId, TrainingJob

LOCAL = LocalOptions(epochs=1, batch=4, lr=0.1)
LENT = (
    "frozen received",
    "frozen previous",
    "vector received",
    "vector control",
    "vector client_control",
    "client label_counts",
)
WAYS = ("in place", "out", "data", "numpy")


class Intruder(Objective):
    """Reads all that there is, and writes into one of it."""

    frozen = frozenset({"received", "previous"})
    vectors = frozenset({"received", "control", "client_control"})
    client = frozenset({"label_counts"})

    where: str = ""
    way: str = "in place"

    def loss(self, local, batch, context):
        model = context.model
        kind, _, name = self.where.partition(" ")
        if kind == "batch":
            write(getattr(batch, name), self.way)
        cross_entropy = F.cross_entropy(model.apply_blocks(local, batch.inputs), batch.labels)
        with torch.no_grad():
            # As an author would who has not read about modes.
            taught = [model.apply_blocks(context.frozen[name], batch.inputs) for name in sorted(self.frozen)]
        if kind == "frozen":
            write(context.frozen[name][-1]["1.weight"], self.way)
        elif kind == "vector":
            write(context.vectors[name], self.way)
        elif kind == "client":
            write(context.client[name], self.way)
        vectors = sum(vector.square().sum() for vector in context.vectors.values())
        total = cross_entropy + 1e-3 * (vectors + sum(logits.square().mean() for logits in taught))
        return Loss(total + 1e-6 * context.client["label_counts"].sum(), cross_entropy)


def write(tensor, way):
    """Add 1 to a tensor."""
    with torch.no_grad():
        if way == "in place":
            tensor.add_(1)
        elif way == "out":
            torch.add(tensor, 1, out=tensor)
        elif way == "data":
            tensor.data.add_(1)
        else:
            array = tensor.detach().numpy()
            array += 1


class Tracking(nn.Module):
    """A layer that PyTorch knows nothing of, with a buffer that counts its calls in training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs):
        if self.training:
            self.calls += 1
        return inputs * (1 + 0.01 * self.calls)


class Clamping(nn.Linear):
    """A layer that keeps its weights small by writing them anew in every evaluation."""

    def forward(self, inputs):
        if not self.training:
            self.weight.clamp_(-0.01, 0.01)
        return super().forward(inputs)


def plain_model(last=nn.Linear):
    """Layers of PyTorch alone, which do not know the mode."""
    blocks = {
        "first": nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        "second": nn.Sequential(nn.Conv2d(4, 6, 2), nn.BatchNorm2d(6, momentum=None), Tracking(), nn.ReLU()),
        "third": nn.Sequential(nn.Flatten(), last(6, 3)),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


def intruding(**options):
    """A method of which clients keep their model and a vector, and the server sends one."""
    state = StatesTogether(states=(ClientState(), ControlVariate()))
    return Method("m", "m", Intruder(**options), Sgd(), Scaffold(), ScaffoldPayload(), state, "uniform", LOCAL)


def rounds(core: TrainingCore, method, count=2, clients=(0, 1, 3)):
    """The last model, and all that was said; the fault that ended it, if one did."""
    learner, said, fault = core.learner(method), [], None
    try:
        for round in range(count):
            jobs = []
            for client in clients:
                before = JobId("m", 3, client, round - 1) if method.state is not None and round else None
                id = JobId("m", 3, client, round)
                jobs.append(
                    TrainingJob(id, round, round, core.model.depth, LOCAL.steps_for(core.data.samples(client)), before)
                )
                learner.submit(jobs[-1])
            with blaming("m", round, "aggregation"):
                learner.aggregate(round, [job.id for job in jobs], round)
            said += [learner.feedback(job.id) for job in jobs]
            with blaming("m", round, "evaluation"):
                said.append(learner.evaluate(round + 1))
    except PartFault as raised:
        fault = str(raised)
    return learner, said, fault


def check_leaves_others_alone(core_of, method, *, blamed=None, either=False):
    """Runs a method twice beside an honest one, and checks the numbers of both.

    Args:
        core_of: makes a core.
        method: what is run.
        blamed: what the fault says, where the method must end with one.
        either: it may end with one.
    """
    honest = build_method("fedavg", LOCAL)
    with core_of() as alone:
        expected, told, _ = rounds(alone, honest)
        expected = expected.model(2).clone()
        first = alone.initial.clone()
    seen = []
    for _ in range(2):
        with core_of() as core:
            learner, said, fault = rounds(core, method)
            seen.append((learner.model(learner._server.version).clone(), said, fault))
            assert torch.equal(core.initial, first)
            assert torch.equal(core.data.images, type(core.data)().images)
            assert torch.equal(core.data.labels, type(core.data)().labels)
            beside, more, none = rounds(core, honest)
            assert none is None
            assert torch.equal(beside.model(2), expected)
            assert more == told
    (model, said, fault), (again, repeated, other) = seen
    assert torch.equal(model, again)
    assert said == repeated
    for found in (fault, other):  # which client it meets first may differ
        assert either or ((found is None) if blamed is None else (blamed in found))
    return model, said
