"""Operators that are noted once and called again come to the bits of the steps that they were noted from."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgefl.learning.engine import tapes
from edgefl.learning.engine.tape import Notes
from edgefl.learning.engine.tapes import Tapes
from edgefl.learning.job import JobId, TrainingJob
from edgefl.learning.local_step import Leaves, differentiated
from edgefl.learning.methods.recipe import METHODS
from edgefl.learning.objectives.base import Batch, Context, Loss, Objective
from edgefl.learning.objectives.cross_entropy import CrossEntropy
from edgefl.learning.objectives.moon import Moon


def watched(monkeypatch):
    """How often what was done: steps that were noted, agreed, differed, and were played."""
    told = {"noted": 0, "agreed": 0, "differed": 0, "played": 0}
    tape, agrees, played = Notes.tape, tapes._agrees, tapes._played

    def noting(self, *outputs):
        found = tape(self, *outputs)
        told["noted"] += found is not None
        return found

    def comparing(*arguments):
        found = agrees(*arguments)
        told["agreed" if found else "differed"] += 1
        told["played"] -= 1  # the comparison's own
        return found

    def playing(*arguments):
        told["played"] += 1
        return played(*arguments)

    monkeypatch.setattr(Notes, "tape", noting)
    monkeypatch.setattr(tapes, "_agrees", comparing)
    monkeypatch.setattr(tapes, "_played", playing)
    return told


def rounds(tiny, method, precision="float32", count=4):
    """The last model, and what all jobs told."""
    with tiny.core() as core:
        learner, said = core.learner(method), []
        depth, last = method.objective.adapt(core.model).depth, {}
        for round in range(count):
            jobs = []
            for client in range(6):
                alpha = depth if client % 2 or not method.payload.sends_blocks else depth - 1
                steps = method.local.steps_for(core.data.samples(client))
                before = last.get(client) if method.state is not None else None
                id = JobId(method.label, 3, client, round)
                jobs.append(TrainingJob(id, round, round, alpha, steps, before))
                learner.submit(jobs[-1])
                last[client] = id
            learner.aggregate(round, [job.id for job in jobs], round)
            said += [learner.feedback(job.id) for job in jobs]
        return learner.model(count), said


# Stochastic Depth wants residual blocks, and makes a table of constants in every step.
NAMES = [name for name, _ in METHODS if name != "stochdepth"]
OPTIONS = {"gradaug": {"sizes": [1.0]}}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_comes_to_the_same_bits_with_tapes(tiny, name, monkeypatch):
    method = tiny.method({"method": name, **OPTIONS.get(name, {})})
    told = watched(monkeypatch)
    with_tapes = rounds(tiny, method)
    assert (told["played"] > 0, told["differed"]) == (method.objective.side_by_side, 0)
    monkeypatch.setattr(tapes, "ROOM_BYTES", -1)
    before = dict(told)
    without = rounds(tiny, method)
    assert told == before
    assert torch.equal(with_tapes[0], without[0])
    assert with_tapes[1] == without[1]


def a_step(model, objective, batch, *, seed=0, frozen=(), differentiate=None):
    """Gradient, loss and the buffers afterwards of one step from seeded weights."""
    layout = model.layout
    numbers = torch.Generator().manual_seed(seed)
    leaves = Leaves(layout)
    buffers = torch.rand(layout.buffer_count, generator=numbers)
    weights = leaves.at(torch.randn(layout.parameter_count, generator=numbers) / 10, buffers)
    copies = {
        name: layout.weights(*layout.split(torch.randn(layout.size, generator=numbers).abs() / 10)) for name in frozen
    }
    context = Context(model, copies, {}, {}, model.depth)
    chosen = Tapes.of(model).job(objective, context) if differentiate is None else differentiate
    gradient, loss = chosen(objective, leaves, weights, batch, context, "float32")
    return gradient, *loss, buffers


def batch_of(size, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(size, 1, 6, 6, generator=numbers), torch.randint(0, 3, (size,), generator=numbers))


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_second_step_of_a_kind_is_noted_the_third_compared_and_later_ones_are_played(tiny, monkeypatch):
    told, model, seen = watched(monkeypatch), tiny.model(), []
    for number in range(5):
        batch = batch_of(4, number)
        plain = a_step(model, CrossEntropy(), batch, seed=number, differentiate=differentiated)
        assert same(a_step(model, CrossEntropy(), batch, seed=number), plain)
        seen.append((told["noted"], told["agreed"], told["played"]))
    assert seen == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 1, 2)]
    a_step(model, CrossEntropy(), batch_of(3))
    assert told["noted"] == 1


@dataclasses.dataclass
class Case:
    loss: object
    noted: int = 0
    differed: int = 0


def by_its_size(logits, labels):
    return logits.sum() * float(logits.detach().abs().max())


def by_a_table(logits, labels):
    return F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2.0, 3.0]))


def by_numpy(logits, labels):
    return F.cross_entropy(logits, labels) * (1 + int(np.bincount(labels.numpy(), minlength=3).argmax()))


@pytest.mark.parametrize("case", [Case(by_its_size), Case(by_a_table), Case(by_numpy, noted=1, differed=1)])
def test_what_is_no_function_of_the_inputs_alone_is_not_played(tiny, monkeypatch, case):
    class Odd(Objective):
        def loss(self, local, batch, context):
            total = case.loss(context.model.apply_blocks(local, batch.inputs), batch.labels)
            return Loss(total, total)

    told, model = watched(monkeypatch), tiny.model()
    for number in range(6):
        batch = batch_of(5, number)
        plain = a_step(model, Odd(), batch, differentiate=differentiated)
        assert same(a_step(model, Odd(), batch), plain)
    assert told == {"noted": case.noted, "agreed": 0, "differed": case.differed, "played": 0}


def test_a_large_step_is_not_noted(tiny, monkeypatch):
    told = watched(monkeypatch)
    monkeypatch.setattr(tapes, "ROOM_BYTES", 1000)
    model = tiny.model()
    for _ in range(5):
        a_step(model, CrossEntropy(), batch_of(4))
    assert not any(told.values())


def test_steps_whose_inputs_are_the_same_memory_wait_until_they_are_not(tiny, monkeypatch):
    told, model = watched(monkeypatch), Moon().adapt(tiny.model())
    layout = model.layout
    vector = torch.rand(layout.size, generator=torch.Generator().manual_seed(1)) / 10

    def step(received, previous):
        leaves, batch = Leaves(layout), batch_of(4)
        weights = leaves.at(vector[: layout.parameter_count].clone(), vector[layout.parameter_count :].clone())
        frozen = {
            "received": layout.weights(*layout.split(received)),
            "previous": layout.weights(*layout.split(previous)),
        }
        context = Context(model, frozen, {}, {}, model.depth)
        arguments = Moon(), leaves, weights, batch, context, "float32"
        found = Tapes.of(model).job(Moon(), context)(*arguments)
        assert torch.equal(found[0], differentiated(*arguments)[0])

    for _ in range(4):
        step(vector, vector)
    assert not any(told.values())
    for number in range(4):
        step(vector, vector * (1 + number))
    step(vector, vector)
    assert told == {"noted": 1, "agreed": 1, "differed": 0, "played": 2}


def test_only_so_many_kinds_are_kept(tiny, monkeypatch):
    monkeypatch.setattr(tapes, "KINDS_KEPT", 2)
    model = tiny.model()
    for size in (2, 3, 4):
        a_step(model, CrossEntropy(), batch_of(size))
    assert len(Tapes.of(model)._kinds) == 2


def test_where_tapes_are_hardly_played_no_more_of_them_are_noted(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    monkeypatch.setattr(tapes, "FREE_TAPES", 2)
    monkeypatch.setattr(tapes, "STEPS_A_TAPE", 3)

    def noted(size, steps):
        for _ in range(steps):
            a_step(model, CrossEntropy(), batch_of(size))
        return told["noted"]

    assert [noted(size, 3) for size in (2, 3, 4, 5)] == [1, 2, 2, 2]
    assert noted(2, 3) == 2
    assert noted(4, 3) == 3
    assert told["played"] == 4


def test_an_argument_that_no_graph_knows_ends_noting_and_nothing_else():
    source, generator = torch.ones(3), torch.Generator()
    with Notes([source], 1 << 20) as notes:
        found = torch.bernoulli(source, generator=generator)
    assert torch.equal(found, source)
    assert notes.tape(found) is None


def test_what_was_written_in_place_is_written_again():
    buffer, number = torch.zeros(2), torch.ones(2)
    with Notes([buffer, number], 1 << 20) as notes:
        total = buffer.add_(number).sum()
    tape = notes.tape(total)
    other = torch.full((2,), 5.0)
    assert tape(other, torch.full((2,), 2.0))[0] == 14
    assert other.tolist() == [7, 7]


def test_an_output_that_is_no_tensor_of_the_block_cannot_be_noted():
    with Notes([torch.ones(1)], 1 << 20) as notes:
        pass
    assert notes.tape(torch.zeros(1)) is None


def test_tapes_go_with_their_skeleton(tiny):
    model = tiny.model()
    held = len(Tapes._of)
    Tapes.of(model)
    assert len(Tapes._of) == held + 1
    del model
    assert len(Tapes._of) == held
