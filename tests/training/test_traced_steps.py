"""Operators that are traced once and called again come to the bits of the steps that they were traced from."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.fedbr import FedBR
from edgefl.methods.kd import KnowledgeDistillation
from edgefl.methods.parts.local_step import Leaves, differentiated
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.tracing import traced_steps
from edgefl.training.tracing.traced_step import StepTracer
from edgefl.training.tracing.traced_steps import TracedSteps

from .conftest import few_of, train_rounds
from .conftest import same as same_rounds


def watched(monkeypatch):
    """How often what was done: steps that were traced, agreed, differed, and were replayed."""
    told = {"traced": 0, "agreed": 0, "differed": 0, "replayed": 0}
    trace, agrees, replayed = StepTracer.traced_step, traced_steps._agrees, traced_steps._replayed

    def tracing(self, *outputs):
        found = trace(self, *outputs)
        told["traced"] += found is not None
        return found

    def comparing(*arguments):
        found = agrees(*arguments)
        told["agreed" if found else "differed"] += 1
        told["replayed"] -= 1  # the comparison's own
        return found

    def replaying(*arguments):
        told["replayed"] += 1
        return replayed(*arguments)

    monkeypatch.setattr(StepTracer, "traced_step", tracing)
    monkeypatch.setattr(traced_steps, "_agrees", comparing)
    monkeypatch.setattr(traced_steps, "_replayed", replaying)
    return told


# Stochastic Depth wants residual blocks, and makes a table of constants in every step.
LEFT_OUT = {"stochdepth"}
# Their local steps are FedAvg's.
LEFT_OUT |= {"fedadagrad", "fedadam", "fedavgm", "fednova", "fedyogi", "slowmo"}
NAMES = [name for name in METHODS.names() if name not in LEFT_OUT]
OPTIONS = {"gradaug": {"sizes": [1.0]}}
CASES = [*((name, "float32") for name in NAMES), ("fedmlb", "bfloat16")]


@pytest.mark.parametrize(("name", "precision"), few_of(CASES, [("fedavg", "float32"), ("fedbr", "float32"), CASES[-1]]))
def test_every_method_comes_to_the_same_bits_with_traces(tiny, name, precision, monkeypatch):
    method = tiny.method({"method": name, **OPTIONS.get(name, {})})
    told = watched(monkeypatch)

    def trained():
        with tiny.core(EngineSpec(kind="sequential", precision=precision)) as core:
            return train_rounds(core, method, 2, (1, 3))

    with_traces = trained()
    assert (told["replayed"] > 0, told["differed"]) == (method.objective.side_by_side, 0)
    monkeypatch.setattr(traced_steps, "ROOM_BYTES", -1)
    before = dict(told)
    assert same_rounds(with_traces, trained())
    assert told == before


def a_step(model, objective, batch, *, seed=0, alpha=None, plain=False, precision="float32", **context):
    """Gradient, loss and the buffers afterwards of one step from seeded weights."""
    layout = model.layout
    numbers = torch.Generator().manual_seed(seed)
    leaves = Leaves(layout)
    buffers = torch.rand(layout.buffer_count, generator=numbers)
    weights = leaves.at(torch.randn(layout.parameter_count, generator=numbers) / 10, buffers)
    given = Context(model, **{"frozen": {}, "vectors": {}, "client": {}, **context}, alpha=alpha or model.depth)
    differentiate = differentiated if plain else TracedSteps.of(model).job(objective, given)
    gradient, loss = differentiate(objective, leaves, weights, batch, given, precision)
    return gradient, *loss, buffers


def batch_of(size, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(size, 1, 6, 6, generator=numbers), torch.randint(0, 3, (size,), generator=numbers))


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_second_step_of_a_kind_is_traced_the_third_compared_and_later_ones_are_replayed(tiny, monkeypatch):
    told, model, seen = watched(monkeypatch), tiny.model(), []
    for number in range(5):
        batch = batch_of(4, number)
        plain = a_step(model, CrossEntropy(), batch, seed=number, plain=True)
        assert same(a_step(model, CrossEntropy(), batch, seed=number), plain)
        seen.append((told["traced"], told["agreed"], told["replayed"]))
    assert seen == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 1, 2)]
    a_step(model, CrossEntropy(), batch_of(3))
    assert told["traced"] == 1


def by_its_size(logits, labels, context):
    return logits.sum() * float(logits.detach().abs().max())


def by_a_table(logits, labels, context):
    return F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2.0, 3.0]))


def by_chance(logits, labels, context):
    torch.manual_seed(0)
    return F.cross_entropy(F.dropout(logits), labels)


@pytest.mark.parametrize("loss", [by_its_size, by_a_table, by_chance])
def test_what_is_no_function_of_the_inputs_alone_is_not_traced(tiny, monkeypatch, loss):
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


DEPENDENT = {
    "unique": lambda x, labels: x.mean() * len(labels.unique()),
    "mask": lambda x, labels: x[x > 0].mean(),
    "where": lambda x, labels: x[torch.where(labels > 0)].mean(),
    "bincount": lambda x, labels: x.mean() * len(labels.bincount()),
    "repeat_interleave": lambda x, labels: x.repeat_interleave(labels, dim=0).mean(),
    "slice": lambda x, labels: x[: labels[0] + 1].mean(),
    "equal": lambda x, labels: x.mean() * (1 + torch.equal(labels, labels.flip(0))),
}
INDEPENDENT = {
    "index": lambda x, labels: x[torch.arange(5), labels].mean(),
    "where": lambda x, labels: torch.where(x > 0, x, 0).sum() / (x > 0).sum(),
    "masked_fill": lambda x, labels: x.masked_fill(x > 0, 0).mean(),
    "one_hot": lambda x, labels: (x * torch.zeros_like(x).scatter(1, labels[:, None], 1)).mean(),
}


def of_this(told, model, function, steps=8):
    """Takes steps with other data each time, and checks that each comes to the bits of a plain one."""

    class Own(Objective):
        def loss(self, local, batch, context):
            total = function(context.model.apply_blocks(local, batch.inputs), batch.labels)
            return Loss(total, total)

    for number in range(steps):
        batch = batch_of(5, number)
        assert same(a_step(model, Own(), batch), a_step(model, Own(), batch, plain=True))


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_step_with_sizes_that_depend_on_data_is_not_traced(tiny, monkeypatch, name):
    told = watched(monkeypatch)
    of_this(told, tiny.model(), DEPENDENT[name])
    assert not any(told.values())


@pytest.mark.parametrize("name", INDEPENDENT)
def test_a_step_with_fixed_sizes_is_traced_though_it_selects_by_data(tiny, monkeypatch, name):
    told = watched(monkeypatch)
    of_this(told, tiny.model(), INDEPENDENT[name])
    assert (told["traced"], told["differed"], told["replayed"]) == (1, 0, 5)


def test_an_operator_that_is_not_pytorchs_own_is_not_traced(tiny, monkeypatch):
    @torch.library.custom_op("edgefl_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_autograd(lambda context, gradient: 2 * gradient)
    told = watched(monkeypatch)
    of_this(told, tiny.model(), lambda x, labels: twice(x).mean())
    assert not any(told.values())


@pytest.mark.parametrize("spoiled", ["gradient", "buffer", "refuses"])
def test_a_traced_step_that_does_not_agree_is_not_replayed(tiny, monkeypatch, spoiled):
    told, model, trace = watched(monkeypatch), tiny.model(), StepTracer.traced_step

    def other(self, *outputs):
        found = trace(self, *outputs)

        def replayed(*inputs):
            gradient, *losses = found(*inputs)
            if spoiled == "gradient":
                gradient[0] = -gradient[0]
            elif spoiled == "buffer":
                inputs[1].add_(1e-6)  # the running mean, or whatever comes second
            else:
                raise IndexError("an argument too many")
            return gradient, *losses

        return replayed

    monkeypatch.setattr(StepTracer, "traced_step", other)
    for number in range(5):
        batch = batch_of(4, number)
        assert same(a_step(model, CrossEntropy(), batch), a_step(model, CrossEntropy(), batch, plain=True))
    assert (told["traced"], told["differed"], told["replayed"]) == (1, 1, 0)


def test_a_step_whose_numbers_are_not_finite_is_not_what_a_traced_step_is_compared_with(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    batch = batch_of(4)
    broken = Batch(batch.inputs * float("nan"), batch.labels)
    for each in (batch, batch, broken, broken, batch, batch):
        a_step(model, CrossEntropy(), each)
    assert told == {"traced": 1, "agreed": 1, "differed": 0, "replayed": 1}


class Flat(Objective):
    """Reads images as they lie: whether that takes a copy depends on their strides."""

    def loss(self, local, batch, context):
        logits = context.model.apply_blocks(local, batch.inputs) + batch.inputs.flatten(1)[:, :3]
        total = F.cross_entropy(logits, batch.labels)
        return Loss(total, total)


def turned(batch):
    """The same images, columns first in memory."""
    return Batch(batch.inputs.mT.contiguous().mT, batch.labels)


def test_steps_of_another_kind_are_not_replayed_by_the_same_traced_step(tiny):
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
    for kind in kinds:  # each has a traced step before the next begins
        for number in range(5):
            told = {"arranged": Batch._make, **kind, "seed": number, "frozen": frozen}
            batch = told.pop("arranged")(batch_of(4, number))
            assert same(a_step(model, batch=batch, **told), a_step(model, batch=batch, plain=True, **told))


def test_a_large_step_is_not_traced(tiny, monkeypatch):
    told = watched(monkeypatch)
    monkeypatch.setattr(traced_steps, "ROOM_BYTES", 1000)
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


def test_where_traced_steps_are_hardly_replayed_no_more_are_traced(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    monkeypatch.setattr(traced_steps, "FREE_TRACES", 2)
    monkeypatch.setattr(traced_steps, "STEPS_A_TRACE", 3)

    def traced(size, steps):
        for _ in range(steps):
            a_step(model, CrossEntropy(), batch_of(size))
        return told["traced"]

    assert [traced(size, 3) for size in (2, 3, 4, 5)] == [1, 2, 2, 2]
    assert traced(2, 3) == 2
    assert traced(4, 3) == 3
    assert told["replayed"] == 4


def test_what_was_written_in_place_is_written_again():
    buffer, number = torch.zeros(2), torch.ones(2)
    with StepTracer([buffer, number], 1 << 20) as tracer:
        total = buffer.add_(number).sum()
    step = tracer.traced_step(total)
    other = torch.full((2,), 5.0)
    assert step(other, torch.full((2,), 2.0))[0] == 14
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
    (torch.ops.aten.add.Tensor, ()),
]


def read_by_a_traced_step(operator, more, inputs):
    """The strides of what an operator reads when it is replayed, and of what it makes."""
    with StepTracer(inputs, 1 << 20) as tracer:
        result = operator(*inputs, *more)
    step = tracer.traced_step(result)
    with Orders(operator) as read:
        (found,) = step(*inputs)
    assert torch.equal(found, result)
    assert found.stride() == result.stride()
    return read.seen, result.stride()


@pytest.mark.parametrize(("operator", "more"), OF_ELEMENTS)
def test_images_in_two_memory_formats_are_converted_to_that_of_the_result(operator, more):
    inputs = [torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)]
    for each in (inputs, inputs[::-1]):
        seen, order = read_by_a_traced_step(operator, more, each)
        assert seen == {order}


@pytest.mark.parametrize(
    "other",
    [
        torch.randn(2, 6, 4, 5).contiguous(memory_format=torch.channels_last)[:, :3],
        torch.randn(2, 3, 1, 1).expand(2, 3, 4, 5),
    ],
    ids=["slice", "expanded"],
)
def test_images_in_one_memory_format_are_not_copied(other):
    one = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    seen, _ = read_by_a_traced_step(*OF_ELEMENTS[0], [other, one])
    assert seen == {other.stride(), one.stride()}


def test_traced_steps_do_not_keep_their_model(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    for _ in range(5):
        a_step(model, CrossEntropy(), batch_of(4))
    assert told["replayed"] == 2
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_while_one_thread_traces_another_steps_plainly(tiny, monkeypatch):
    told, model = watched(monkeypatch), tiny.model()
    with traced_steps._tracing:
        for _ in range(5):
            a_step(model, CrossEntropy(), batch_of(4))
    assert not any(told.values())
    a_step(model, CrossEntropy(), batch_of(4))
    assert told["traced"] == 1
