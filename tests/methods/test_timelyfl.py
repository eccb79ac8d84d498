"""TimelyFL against its partial training and aggregation computed in float64, and its bytes and FLOPs by hand."""

from collections import defaultdict

import torch

from edgefl.cost.measure import measure
from edgefl.data.attackers import Attack, Attackers
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import JobTask

from ..training.conftest import SIZES, TinyData, tiny_model
from .test_width_methods import PreciseData, by_name, cross_entropy, outputs

LOCAL = LocalOptions(epochs=1, batch=4, lr=0.1, weight_decay=0.01, momentum=0.5, clip_norm=0.5)
BLOCKS = ("first", "second", "third")
ROUNDS = [{0: (3, 2), 1: (2, 1), 3: (1, 1)}, {1: (1, 1), 2: (2, 1)}, {3: (1, 1), 4: (1, 1)}]
"""Of each client: the number of its last blocks, and its epochs."""


def after_rounds(data, rounds, *, double=False, engine="sequential", attackers=None):
    method = build_method("timelyfl", LOCAL)
    with TrainingCore(data, tiny_model(), 3, engine=engine, attackers=attackers) as core:
        first = core.initial.double() if double else core.initial
        if double:
            core._own = core._own._replace(initial=first)
        learner = core.learner(method)
        dispatched = defaultdict(int)
        for round, chosen in enumerate(rounds):
            jobs = []
            for client, (alpha, epochs) in chosen.items():
                id = JobId("timelyfl", 3, client, dispatched[client])
                dispatched[client] += 1
                steps = epochs * LOCAL.steps_of_an_epoch(SIZES[client])
                learner.submit(TrainingJob(id, round, round, alpha, steps))
                jobs.append(id)
            learner.aggregate(round, jobs, round)
        return learner.model(len(rounds)), first, core.model.layout


def expected(first, rounds):
    """Each round by hand: SGD on the last blocks, then the mean over the clients that trained a tensor."""
    data, dispatched = PreciseData(), defaultdict(int)
    model = {name: tensor.clone() for name, tensor in first.items() if "running" not in name}
    for round, chosen in enumerate(rounds):
        trained = {name: [] for name in model}
        for client, (alpha, epochs) in chosen.items():
            steps = epochs * LOCAL.steps_of_an_epoch(SIZES[client])
            task = JobTask("", 3, client, round, dispatched[client], None, None, LOCAL, 0.1, steps, 3, None)
            dispatched[client] += 1
            mine = [name for name in model if name.split(".")[0] in BLOCKS[3 - alpha :]]
            own = {name: tensor.clone() for name, tensor in model.items()}
            velocity = {name: torch.zeros_like(own[name]) for name in mine}
            for images, labels in data.batches(task):
                for name in mine:
                    own[name] = own[name].detach().requires_grad_()
                loss = cross_entropy(outputs(own, images, 1.0), labels)
                gradients = torch.autograd.grad(loss, [own[name] for name in mine])
                norm = sum(gradient.square().sum() for gradient in gradients).sqrt()
                for name, gradient in zip(mine, gradients, strict=True):
                    step = gradient * min(1.0, 0.5 / (norm + 1e-6)) + 0.01 * own[name].detach()
                    velocity[name] = 0.5 * velocity[name] + step
                    own[name] = own[name].detach() - 0.1 * velocity[name]
            for name in mine:
                trained[name].append((SIZES[client], own[name].detach()))
        for name, found in trained.items():
            if found:
                model[name] = sum(weight * tensor for weight, tensor in found) / sum(weight for weight, _ in found)
    return model


def test_attackers_change_only_the_blocks_that_they_train():
    attackers = Attackers(Attack(share=0.5, kind="noise"), 0, frozenset(SIZES))
    found, first, layout = after_rounds(TinyData(), [{3: (1, 1), 4: (1, 1)}], attackers=attackers)
    changed = (found != first)[: layout.parameter_count]
    front = layout.before(2)[0]
    assert (bool(changed[:front].any()), bool(changed[front:].all())) == (False, True)


def test_it_is_sgd_on_the_last_blocks_and_the_mean_over_those_who_trained_a_tensor():
    found, first, layout = after_rounds(PreciseData(), ROUNDS, double=True)
    named = by_name(found, layout)
    for name, tensor in expected(by_name(first, layout), ROUNDS).items():
        assert (named[name] - tensor).abs().max() < 1e-12, name


def test_a_step_runs_the_whole_forward_pass_and_the_backward_pass_of_the_last_blocks_only():
    model, method, batch = tiny_model(), build_method("timelyfl", LocalOptions(batch=4, lr=0.1)), 4
    whole, tail = measure(model, method, 3, batch), measure(model, method, 1, batch)
    assert tail.forward_macs == whole.forward_macs
    products = {
        alpha: sum(
            op.flops * op.count for op in cost.operators if any(word in op.name for word in ("conv", "mm", "linear"))
        )
        for alpha, cost in ((3, whole), (1, tail))
    }
    linear = 2 * batch * 16 * 9 * 3  # FLOPs of one pass through the last layer
    biases = batch * (16 * 9 + 3)
    # The last layer needs the gradient of its weights, not of its inputs.
    assert products[1] == 2 * tail.forward_macs + biases + linear
    [update] = [op for op in tail.operators if op.name == "sub_"]
    assert update.flops == 2 * (16 * 9 * 3 + 3)
    assert products[1] < products[3]
    assert tail.peak_memory_bytes < whole.peak_memory_bytes


def test_its_common_finish_is_that_of_the_paper_where_a_scenario_does_not_say_otherwise():
    finish = build_method({"method": "timelyfl", "local": {"common_finish": {"share": 0.8}}}, LOCAL).local.common_finish
    assert (finish.share, finish.unit, finish.drop_late) == (0.8, "epochs", True)
    assert build_method("fedavg", LOCAL).local.common_finish is None
