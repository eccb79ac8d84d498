"""Operators that are noted once and called again come to the bits of the steps that they were noted from."""

import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.learning.engine import tapes
from edgefl.learning.engine.core import TrainingCore
from edgefl.learning.engine.spec import EngineSpec
from edgefl.learning.engine.tape import Notes
from edgefl.learning.engine.tapes import Tapes
from edgefl.learning.job import JobId, TrainingJob
from edgefl.learning.local_step import Leaves, differentiated
from edgefl.learning.methods.recipe import METHODS
from edgefl.learning.objectives.base import Batch, Context, Loss, Objective
from edgefl.learning.objectives.cross_entropy import CrossEntropy
from edgefl.learning.objectives.fedbr import FedBR
from edgefl.learning.objectives.kd import KnowledgeDistillation


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


def rounds(tiny, method, precision, count=4):
    """The last model, and what all jobs told."""
    with TrainingCore(tiny.data(), tiny.model(), 3, engine=EngineSpec(kind="sequential", precision=precision)) as core:
        learner, said = core.learner(method), []
        depth, last = method.objective.adapt(core.model).depth, {}
        for round in range(count):
            jobs = []
            for client in range(6):
                alpha = depth if (client + round) % 2 or not method.payload.sends_blocks else 1
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


@pytest.mark.parametrize(("name", "precision"), [*((name, "float32") for name in NAMES), ("fedmlb", "bfloat16")])
def test_every_method_comes_to_the_same_bits_with_tapes(tiny, name, precision, monkeypatch):
    method = tiny.method({"method": name, **OPTIONS.get(name, {})})
    told = watched(monkeypatch)
    with_tapes = rounds(tiny, method, precision)
    assert (told["played"] > 0, told["differed"]) == (method.objective.side_by_side, 0)
    monkeypatch.setattr(tapes, "ROOM_BYTES", -1)
    before = dict(told)
    without = rounds(tiny, method, precision)
    assert told == before
    assert torch.equal(with_tapes[0], without[0])
    assert with_tapes[1] == without[1]


def a_step(model, objective, batch, *, seed=0, alpha=None, plain=False, precision="float32", **context):
    """Gradient, loss and the buffers afterwards of one step from seeded weights."""
    layout = model.layout
    numbers = torch.Generator().manual_seed(seed)
    leaves = Leaves(layout)
    buffers = torch.rand(layout.buffer_count, generator=numbers)
    weights = leaves.at(torch.randn(layout.parameter_count, generator=numbers) / 10, buffers)
    given = Context(model, **{"frozen": {}, "vectors": {}, "client": {}, **context}, alpha=alpha or model.depth)
    differentiate = differentiated if plain else Tapes.of(model).job(objective, given)
    gradient, loss = differentiate(objective, leaves, weights, batch, given, precision)
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
        plain = a_step(model, CrossEntropy(), batch, seed=number, plain=True)
        assert same(a_step(model, CrossEntropy(), batch, seed=number), plain)
        seen.append((told["noted"], told["agreed"], told["played"]))
    assert seen == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 1, 2)]
    a_step(model, CrossEntropy(), batch_of(3))
    assert told["noted"] == 1


def by_its_size(logits, labels, context):
    return logits.sum() * float(logits.detach().abs().max())


def by_a_table(logits, labels, context):
    return F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2.0, 3.0]))


def by_a_list(logits, labels, context):
    return F.cross_entropy(logits, labels) * sum(context.client["label_counts"].tolist())


def by_numpy(logits, labels, context):
    return F.cross_entropy(logits, labels) * float(np.asarray(context.client["label_counts"]).max())


def by_chance(logits, labels, context):
    torch.manual_seed(0)
    return F.cross_entropy(F.dropout(logits), labels)


def by_a_sparse_matrix(logits, labels, context):
    return F.cross_entropy(logits, labels) + torch.sparse.mm(torch.eye(3).to_sparse(), logits.T).sum()


@pytest.mark.parametrize("loss", [by_its_size, by_a_table, by_a_list, by_numpy, by_chance, by_a_sparse_matrix])
def test_what_is_no_function_of_the_inputs_alone_is_not_noted(tiny, monkeypatch, loss):
    class Odd(Objective):
        def loss(self, local, batch, context):
            total = loss(context.model.apply_blocks(local, batch.inputs), batch.labels, context)
            return Loss(total, total)

    told, model = watched(monkeypatch), tiny.model()
    for number in range(6):
        batch = batch_of(5, number)
        about = {"client": {"label_counts": torch.arange(3) + number // 4}}
        plain = a_step(model, Odd(), batch, plain=True, **about)
        assert same(a_step(model, Odd(), batch, **about), plain)
    assert not any(told.values())


@pytest.mark.parametrize("spoiled", ["gradient", "buffer", "refuses"])
def test_a_tape_that_does_not_agree_with_a_step_is_not_played(tiny, monkeypatch, spoiled):
    told, model, tape = watched(monkeypatch), tiny.model(), Notes.tape

    def other(self, *outputs):
        found = tape(self, *outputs)

        def played(*inputs):
            gradient, *losses = found(*inputs)
            if spoiled == "gradient":
                gradient[0] = -gradient[0]
            elif spoiled == "buffer":
                inputs[1].add_(1e-6)  # the running mean, or whatever comes second
            else:
                raise IndexError("an argument too many")
            return gradient, *losses

        return played

    monkeypatch.setattr(Notes, "tape", other)
    for number in range(5):
        batch = batch_of(4, number)
        assert same(a_step(model, CrossEntropy(), batch), a_step(model, CrossEntropy(), batch, plain=True))
    assert (told["noted"], told["differed"], told["played"]) == (1, 1, 0)


def test_a_step_whose_numbers_are_not_finite_is_not_what_a_tape_is_compared_with(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    batch = batch_of(4)
    broken = Batch(batch.inputs * float("nan"), batch.labels)
    for each in (batch, batch, broken, broken, batch, batch):
        a_step(model, CrossEntropy(), each)
    assert told == {"noted": 1, "agreed": 1, "differed": 0, "played": 1}


class Flat(Objective):
    """Reads images as they lie: whether that takes a copy depends on their strides."""

    def loss(self, local, batch, context):
        logits = context.model.apply_blocks(local, batch.inputs) + batch.inputs.flatten(1)[:, :3]
        total = F.cross_entropy(logits, batch.labels)
        return Loss(total, total)


def turned(batch):
    """The same images, columns first in memory."""
    return Batch(batch.inputs.mT.contiguous().mT, batch.labels)


def test_steps_of_another_kind_are_not_played_by_the_same_tape(tiny):
    model = tiny.model()
    layout = model.layout
    received = torch.rand(layout.size, generator=torch.Generator().manual_seed(2))
    frozen = {"received": layout.weights(*layout.split(received))}
    kinds = [
        {"objective": KnowledgeDistillation(gamma=0.2)},
        {"objective": KnowledgeDistillation(gamma=0.3)},
        {"objective": FedBR()},
        {"objective": FedBR(), "alpha": 1},
        {"objective": FedBR(), "precision": "bfloat16"},
        {"objective": Flat()},
        {"objective": Flat(), "arranged": turned},
    ]
    for kind in kinds:  # each has a tape before the next begins
        for number in range(5):
            told = {"arranged": Batch._make, **kind, "seed": number, "frozen": frozen}
            batch = told.pop("arranged")(batch_of(4, number))
            assert same(a_step(model, batch=batch, **told), a_step(model, batch=batch, plain=True, **told))


def test_a_draw_that_is_one_number_many_times_does_not_end_training(tiny, monkeypatch):
    class Scaled(Objective):
        def loss(self, local, batch, context):
            logits = context.model.apply_blocks(local, batch.inputs) * context.draws["scale"][:, None]
            total = F.cross_entropy(logits, batch.labels)
            return Loss(total, total)

    told, model = watched(monkeypatch), tiny.model()
    for number in range(5):
        about = {"draws": {"scale": torch.tensor(float(number)).expand(4)}}
        a_step(model, Scaled(), batch_of(4, number), **about)
    assert not any(told.values())


def test_a_large_step_is_not_noted(tiny, monkeypatch):
    told = watched(monkeypatch)
    monkeypatch.setattr(tapes, "ROOM_BYTES", 1000)
    model = tiny.model()
    for _ in range(5):
        a_step(model, CrossEntropy(), batch_of(4))
    assert not any(told.values())


class Apart(Objective):
    """Reads one model by name and another as a vector that autograd wraps anew."""

    def loss(self, local, batch, context):
        cross_entropy = F.cross_entropy(context.model.apply_blocks(local, batch.inputs), batch.labels)
        received = context.model.layout.weights(context.vectors["received"])
        total = cross_entropy
        for block, other in zip(context.frozen["previous"], received, strict=True):
            for name in other:
                total = total + (block[name] * torch.nn.Parameter(other[name])).sum()
        return Loss(total, cross_entropy)


def test_inputs_that_lie_within_each_other_in_one_job_may_not_in_the_next(tiny):
    model = tiny.model()
    layout = model.layout
    vector = torch.rand(layout.size, generator=torch.Generator().manual_seed(1)) / 10
    for factor in (1, 1, 1, 1, 2, 3, 4, 5, 1):
        previous = vector if factor == 1 else vector * factor
        about = {
            "frozen": {"previous": layout.weights(*layout.split(previous))},
            "vectors": {"received": vector[: layout.parameter_count]},
        }
        batch = batch_of(4, factor)
        assert same(a_step(model, Apart(), batch, **about), a_step(model, Apart(), batch, plain=True, **about))


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


class Orders(TorchDispatchMode):
    """Where the images lie that an operator reads."""

    def __init__(self, operator):
        super().__init__()
        self.operator, self.seen = operator, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is self.operator:
            self.seen |= {each.stride() for each in args if isinstance(each, torch.Tensor)}
        return func(*args, **(kwargs or {}))


OF_ELEMENTS = [
    (torch.ops.aten.threshold_backward.default, (0,)),
    (torch.ops.aten.hardtanh_backward.default, (-1, 1)),
    (torch.ops.aten.leaky_relu_backward.default, (0.1, False)),
    (torch.ops.aten.add.Tensor, ()),
]


def read_by_a_tape(operator, more, inputs):
    """The strides of what an operator reads when it is played, and of what it makes."""
    with Notes(inputs, 1 << 20) as notes:
        result = operator(*inputs, *more)
    tape = notes.tape(result)
    with Orders(operator) as read:
        (found,) = tape(*inputs)
    assert torch.equal(found, result)
    assert found.stride() == result.stride()
    return read.seen, result.stride()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("operator", "more"), OF_ELEMENTS)
def test_images_in_two_orders_are_brought_into_that_of_the_result_before_they_are_read(operator, more, turned):
    inputs = [torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)]
    seen, order = read_by_a_tape(operator, more, inputs[::-1] if turned else inputs)
    assert seen == {order}


@pytest.mark.parametrize(("operator", "more"), OF_ELEMENTS)
@pytest.mark.parametrize(
    "other",
    [
        torch.randn(2, 6, 4, 5).contiguous(memory_format=torch.channels_last)[:, :3],
        torch.randn(2, 3, 1, 1).expand(2, 3, 4, 5),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    ],
    ids=["slice", "expanded", "same"],
)
def test_what_lies_in_one_order_already_is_not_copied(operator, more, other):
    one = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    seen, _ = read_by_a_tape(operator, more, [other, one])
    assert seen == {other.stride(), one.stride()}


def test_an_output_that_is_no_tensor_of_the_block_cannot_be_noted():
    with Notes([torch.ones(1)], 1 << 20) as notes:
        pass
    assert notes.tape(torch.zeros(1)) is None


def test_tapes_go_with_their_skeleton(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    for _ in range(5):
        a_step(model, CrossEntropy(), batch_of(4))
    assert told["played"] == 2
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_while_one_thread_notes_another_steps_plainly(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    with tapes._noting:
        for _ in range(5):
            a_step(model, CrossEntropy(), batch_of(4))
    assert not any(told.values())
    a_step(model, CrossEntropy(), batch_of(4))
    assert told["noted"] == 1
