"""Nothing that a job, a loss, a layer or an evaluation is handed can write into what others read."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from edgefl.methods.client_state import ClientState
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.payload import Payload
from edgefl.methods.servers.mean import Mean
from edgefl.models.mode import using
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.lent import Lent, WrittenInPlace

from .intruders import LENT, LOCAL, WAYS, Clamping, check_leaves_others_alone, intruding, plain_model, rounds, write

ENGINES = ["sequential", "parallel", "batched"]


@pytest.fixture(params=ENGINES)
def core_of(request, tiny):
    """Makes a core with one of the engines, for the tiny model or a given one."""

    def made(model=None):
        core = TrainingCore(tiny.data(), model or tiny.model(), 3, engine=request.param, workers=2)
        if request.param == "parallel":
            core._own.engine._engine._settled = 0
        return core

    return made


def called(where):
    """What a message calls something lent."""
    kind, _, name = where.partition(" ")
    return f"{kind.replace('vector', 'vectors')}['{name}']"


@pytest.mark.parametrize("where", LENT)
def test_a_loss_that_writes_into_what_it_was_lent_ends_its_method_with_a_fault(core_of, where):
    check_leaves_others_alone(core_of, intruding(where=where), blamed=f"{called(where)}")


@pytest.mark.parametrize("way", ["out", "data", "numpy"])
@pytest.mark.parametrize("where", ["frozen received", "client label_counts"])
def test_however_a_loss_writes_it_is_found_and_nobody_else_is_affected(core_of, where, way):
    # PyTorch does not count writes through .data and NumPy; they reach the job's own copy alone.
    check_leaves_others_alone(core_of, intruding(where=where, way=way), blamed=called(where))


@pytest.mark.parametrize("where", ["batch inputs", "batch labels"])
def test_a_batch_is_the_jobs_own(core_of, where):
    if where == "batch labels":
        check_leaves_others_alone(core_of, intruding(where=where), either=True)  # there is no fourth class
    else:
        check_leaves_others_alone(core_of, intruding(where=where))


class Careless(ClientState):
    """Writes into what it is given."""

    where: str
    way: str

    def first(self, received, parameter_count):
        if self.where == "first":
            write(received, self.way)
        return {"previous": received}

    def after(self, vectors, received, final, lr, steps):
        written = {"vectors": vectors["previous"], "received": received, "final": final}
        if self.where in written:
            write(written[self.where], self.way)
        return {"previous": final}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("where", "named"),
    [("first", "the received model"), ("vectors", "vectors['previous']"), ("received", "the received model"),
     ("final", "the trained model")],
)  # fmt: skip
def test_a_client_state_that_writes_into_what_it_is_given_ends_its_method_alone(tiny, where, named, way):
    careless = replace(tiny.method("fedavg"), label="m", local=LOCAL, state=Careless(where=where, way=way))

    def core():
        return TrainingCore(tiny.data(), tiny.model(), 3, engine="sequential")

    check_leaves_others_alone(core, careless, blamed=f"{named}")


def test_a_client_state_that_returns_what_it_is_given_keeps_the_original_and_not_a_copy(tiny):
    with TrainingCore(tiny.data(), tiny.model(), 3, engine="sequential") as core:
        learner = core.learner(replace(tiny.method("fedavg"), label="m", local=LOCAL, state=ClientState()))
        steps = LOCAL.steps_for(core.data.samples(0))
        learner.submit(TrainingJob(JobId("m", 3, 0, 0), 0, 0, core.model.depth, steps))
        inputs = learner._inputs(learner._waiting[JobId("m", 3, 0, 0)])
        assert inputs.vectors["previous"] is inputs.task.start is learner.model(0)


def test_plain_batch_norm_and_layers_with_buffers_write_into_nothing_of_others(core_of):
    model, _ = check_leaves_others_alone(lambda: core_of(plain_model()), intruding())
    assert torch.isfinite(model).all()


def test_a_layer_that_writes_into_its_weights_is_named_when_its_model_is_evaluated(core_of):
    blamed = "evaluation: WrittenInPlace: the evaluated model (third.1.weight) was written to in place"
    alone = replace(intruding(), objective=CrossEntropy(), server=Mean(), payload=Payload(), state=None)
    with core_of(plain_model(Clamping)) as core:
        before = core.initial.clone()
        learner, _, fault = rounds(core, alone)
        assert blamed in fault
        assert torch.equal(core.initial, before)
        assert learner.model(1)[: core.model.layout.parameter_count].abs().max() > 0.01


@pytest.mark.parametrize("training", [True, False])
def test_frozen_copies_do_not_track_and_layers_are_in_the_mode_of_the_call(training):
    model, generator = plain_model(), torch.Generator().manual_seed(1)
    layout = model.layout
    vector = torch.rand(layout.size, generator=generator)
    before, images = vector.clone(), torch.randn(5, 1, 6, 6, generator=generator)
    with torch.no_grad(), using(training=training):
        found = model.apply_blocks(layout.frozen(*layout.split(vector)), images)
    assert torch.equal(vector, before)
    reference = plain_model().blocks
    for block, tensors in zip(reference.values(), layout.weights(*layout.split(before)), strict=True):
        block.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, strict=False)
    # PyTorch's own way: in training a copy of the module, whose statistics are thrown away.
    expected = nn.Sequential(*reference.values()).train(training)(images)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_local_model_of_plain_layers_trains_as_pytorch_does():
    model, generator = plain_model(), torch.Generator().manual_seed(1)
    layout = model.layout
    vector = torch.rand(layout.size, generator=generator)
    images = torch.randn(5, 1, 6, 6, generator=generator)
    reference = nn.Sequential(*plain_model().blocks.values()).train()
    for entry in layout.buffers:
        if entry.name.endswith("num_batches_tracked"):
            vector[layout.parameter_count + entry.start] = 0
    state = {}
    for index, tensors in enumerate(layout.weights(*layout.split(vector.clone()))):
        state |= {f"{index}.{name}": tensor for name, tensor in tensors.items()}
    reference.load_state_dict(state)
    for _ in range(3):
        with torch.no_grad(), using(training=True, track=True):
            found = model.apply_blocks(layout.weights(*layout.split(vector)), images)
            assert torch.allclose(found, reference(images), atol=1e-6)
    after = reference.state_dict()
    for index, tensors in enumerate(layout.weights(*layout.split(vector))):
        for name, tensor in tensors.items():
            assert torch.allclose(tensor, after[f"{index}.{name}"].float(), atol=1e-6)


def test_vectors_that_begin_together_share_one_copy_and_a_write_is_named_by_the_numbers():
    whole = torch.arange(6.0)
    lent = Lent({"the model": whole, "its parameters": whole[:4], "another": torch.ones(2)})
    assert lent["the model"].data_ptr() == lent["its parameters"].data_ptr() != whole.data_ptr()
    lent.check()
    lent["the model"][5] = 0
    with pytest.raises(WrittenInPlace, match=r"^the model was written"):
        lent.check()
    assert torch.equal(whole, torch.arange(6.0))
