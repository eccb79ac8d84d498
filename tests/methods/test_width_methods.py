"""HeteroFL, FedRolex and FjORD against computations of their papers' steps and aggregations in float64."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F

from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch
from edgefl.randomness import generator
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import JobTask

from ..training.conftest import SIZES, TinyData, tiny_model

LOCAL = LocalOptions(epochs=1, batch=4, lr=0.1)
CHANNELS = {"first": 8, "second": 16}
LEVELS = (1.0, 0.5, 0.25)


class PreciseData(TinyData):
    """The same images as float64."""

    def batches(self, task: JobTask):
        return (Batch(images.double(), labels) for images, labels in super().batches(task))


def trained(learner, method: str, rounds: list[dict[int, int]], alpha: int, local=LOCAL):
    """The model after rounds of clients with levels."""
    dispatched = defaultdict(int)
    for round, levels in enumerate(rounds):
        jobs = []
        for client, level in levels.items():
            id = JobId(method, 3, client, dispatched[client])
            dispatched[client] += 1
            learner.submit(TrainingJob(id, round, round, alpha, local.steps_for(SIZES[client]), None, level))
            jobs.append(id)
        learner.aggregate(round, jobs, round)
    return learner.model(len(rounds))


def after_rounds(method: str, rounds: list[dict[int, int]], local=LOCAL, **options):
    """The model ``[size]`` after rounds of clients with levels, and the model that it began from, in float64."""
    built = build_method({"method": method, "levels": list(LEVELS), **options}, local)
    with TrainingCore(PreciseData(), tiny_model(), 3, engine="sequential") as core:
        first = core.initial.double()
        core._own = core._own._replace(initial=first)
        return trained(core.learner(built), method, rounds, 3, local), first, core.model.layout


def by_name(vector, layout):
    return {
        f"{layout.block_names[index]}.{name}": tensor
        for index, block in enumerate(layout.weights(*layout.split(vector)))
        for name, tensor in block.items()
    }


def chosen(round: int, share: float, rolling: bool):
    """The channels of both hidden layers."""
    return {
        name: torch.tensor([((round if rolling else 0) + i) % count for i in range(int(share * count))])
        for name, count in CHANNELS.items()
    }


def part_of(model, kept):
    """The tensors of a client's part, cut out by hand; 9 positions follow each channel of the flattened maps."""
    one, two = kept["first"], kept["second"]
    flat = (two[:, None] * 9 + torch.arange(9)).flatten()
    places = {"first.0.weight": (one,), "second.0.weight": (two, one), "second.0.bias": (two,)}
    places |= {name: (one,) for name in model if name.startswith("first.1.")}
    places |= {"third.1.weight": (torch.arange(3), flat), "third.1.bias": (torch.arange(3),)}
    return places


def outputs(part, images, scale):
    maps = F.conv2d(images, part["first.0.weight"], padding=1) / scale
    mean, var = maps.mean(dim=(0, 2, 3)), maps.var(dim=(0, 2, 3), unbiased=False)
    maps = (maps - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
    maps = maps * part["first.1.weight"][:, None, None] + part["first.1.bias"][:, None, None]
    maps = F.max_pool2d(maps.relu(), 2)
    maps = (F.conv2d(maps, part["second.0.weight"], part["second.0.bias"], padding=1) / scale).relu()
    return maps.flatten(1) @ part["third.1.weight"].T + part["third.1.bias"]


def cross_entropy(logits, labels):
    return -logits.log_softmax(dim=1)[torch.arange(len(labels)), labels].mean()


def expected(first, rounds, *, rolling=False, scaler=False, uniform=False, masked=False, loss=None):
    """The papers' rounds on tensors by name: cut, train, and average each number over the clients that trained it."""
    model = {name: tensor.clone() for name, tensor in first.items() if "running" not in name}
    dispatched = defaultdict(int)
    data = PreciseData()
    for round, levels in enumerate(rounds):
        sums = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
        weights = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
        for client, level in levels.items():
            share = LEVELS[level]
            places = {n: p for n, p in part_of(model, chosen(round, share, rolling)).items() if n in model}
            where = {
                name: torch.meshgrid(*place, indexing="ij") if len(place) > 1 else place
                for name, place in places.items()
            }
            part = {name: model[name][where[name]].clone().requires_grad_() for name in model}
            steps = LOCAL.steps_for(SIZES[client])
            task = JobTask("", 3, client, round, dispatched[client], None, None, LOCAL, 0.1, steps, 3, None)
            dispatched[client] += 1
            present = data.facts(client)["label_counts"] > 0
            for step, (images, labels) in enumerate(data.batches(task)):
                if loss is not None:
                    value = loss(part, images, labels, share, task, step)
                else:
                    logits = outputs(part, images, share if scaler else 1.0)
                    value = cross_entropy(logits * present if masked else logits, labels)
                gradients = torch.autograd.grad(value, list(part.values()))
                part = {
                    n: (t - 0.1 * g).detach().requires_grad_()
                    for (n, t), g in zip(part.items(), gradients, strict=True)
                }
            weight = 1 if uniform else SIZES[client]
            for name, tensor in part.items():
                sums[name][where[name]] += weight * tensor.detach()
                weights[name][where[name]] += weight
        model = {n: torch.where(weights[n] > 0, sums[n] / weights[n].clamp(min=1), model[n]) for n in model}
    return model


ROUNDS = [{0: 0, 1: 1, 3: 2}, {1: 1, 2: 2}, {3: 2, 4: 2}]


def check(found, layout, wanted, tolerance=1e-12):
    named = by_name(found, layout)
    for name, tensor in wanted.items():
        assert (named[name] - tensor).abs().max() < tolerance, name


@pytest.mark.parametrize(("scaler", "mask"), [(False, False), (True, True)])
def test_heterofl_is_its_papers_local_steps_and_aggregation(scaler, mask):
    found, first, layout = after_rounds("heterofl", ROUNDS, scaler=scaler, mask_absent=mask)
    wanted = expected(by_name(first, layout), ROUNDS, scaler=scaler, uniform=True, masked=mask)
    check(found, layout, wanted)


def test_fedrolex_is_its_papers_window_and_aggregation():
    rounds = [*ROUNDS, {1: 1, 2: 2}, *[{3: 2, 5: 2}] * 6]  # the window of the first layer passes its last channel
    found, first, layout = after_rounds("fedrolex", rounds)
    check(found, layout, expected(by_name(first, layout), rounds, rolling=True))
    assert (found - after_rounds("heterofl", rounds, scaler=False, weighting="samples")[0]).abs().max() > 1e-3


def drawn_widths(distill: bool, alpha: float = 0.5, temperature: float = 1.0):
    """FjORD's loss of a step by hand."""
    streams = {}

    def loss(part, images, labels, share, task, step):
        if not step:
            streams[task.client] = generator(3, "objective", task.client, task.dispatch)
        widths = [level for level in LEVELS if level <= share]
        width = widths[int(streams[task.client].random() * len(widths))]
        one, two = int(8 * width), int(16 * width)
        narrow = {name: tensor[:one] for name, tensor in part.items() if name.startswith("first")}
        narrow |= {"second.0.weight": part["second.0.weight"][:two, :one], "second.0.bias": part["second.0.bias"][:two]}
        narrow |= {"third.1.weight": part["third.1.weight"][:, : 9 * two], "third.1.bias": part["third.1.bias"]}
        logits = outputs(narrow, images, 1.0)
        if not distill:
            return cross_entropy(logits, labels)
        widest = outputs(part, images, 1.0)
        if width == share:
            return cross_entropy(widest, labels)
        teacher = (widest.detach() / temperature).softmax(dim=1)
        apart = (teacher * (teacher.log() - (logits / temperature).log_softmax(dim=1))).sum(dim=1).mean()
        student = (1 - alpha) * cross_entropy(logits, labels) + alpha * temperature**2 * apart
        return cross_entropy(widest, labels) + student

    return loss


@pytest.mark.parametrize(
    "options", [{"distill": False}, {"distill": True}, {"distill": True, "alpha": 0.9, "temperature": 2.0}]
)
def test_fjord_is_its_papers_local_steps_and_aggregation(options):
    found, first, layout = after_rounds("fjord", ROUNDS, **options)
    check(found, layout, expected(by_name(first, layout), ROUNDS, loss=drawn_widths(**options)))


def test_with_the_first_level_only_it_is_fedavg():
    alike = [{0: 0, 1: 0}, {2: 0, 3: 0}]
    found, first, layout = after_rounds("heterofl", alike, weighting="samples")
    check(found, layout, expected(by_name(first, layout), alike))


@pytest.mark.parametrize(
    ("method", "other", "said"),
    [
        ("heterofl", {"server": {"kind": "feddyn"}}, "train parts of the model"),
        ("timelyfl", {"server": {"kind": "scaffold"}}, "scaffold"),
        ("fedrolex", {"codec": {"up": "cast"}}, "codec"),
        ("timelyfl", {"codec": {"up": "top_k"}}, "codec"),
    ],
)
def test_servers_that_need_whole_models_and_codecs_are_refused(method, other, said):
    with pytest.raises(UserError, match=said):
        build_method({"method": method, **other}, LOCAL)


@pytest.mark.parametrize("levels", [[], [0.5, 1.0], [1.5]])
def test_levels_are_shares_largest_first(levels):
    with pytest.raises(UserError, match="levels"):
        build_method({"method": "heterofl", "levels": levels}, LOCAL)
