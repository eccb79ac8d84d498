"""What a server broadcasts travels in parts of the downlink, and may be read as a frozen copy."""

from dataclasses import replace
from itertools import count, product

import pytest
import torch
import torch.nn.functional as F

from edgefl.errors import UserError, WrongAnswer
from edgefl.methods.build import build_method
from edgefl.methods.codecs.by_tensor import encoded_sizes
from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.broadcasts import Broadcasts
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.objective import Loss, Objective
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob

from ..training.conftest import TinyData, tiny_model

LOCAL = LocalOptions(epochs=1, batch=4, lr=0.1)
NUMBERS = count()
SIZES = ModelSizes((10, 20, 30))


class Taught(Objective):
    frozen = frozenset({"teacher"})

    def loss(self, local, batch, context):
        cross_entropy = F.cross_entropy(context.model.apply_blocks(local, batch.inputs), batch.labels)
        teacher = context.model.apply_blocks(context.frozen["teacher"], batch.inputs)
        return Loss(cross_entropy + (teacher**2).mean(), cross_entropy)


class Teaching(Mean):
    broadcasts = ("teacher",)

    def begin(self, parameters):
        return {"teacher": parameters / 2}

    def update(self, parameters, arrivals, state, facts):
        return super().update(parameters, arrivals, state, facts)[0], state


class Sending(Payload):
    """The model and, by a rule, the teacher."""

    rule: str = "always"

    def downlink(self, sizes, round, alpha, held):
        sent = {"always": True, "once": held is None, "later": round > 0, "every third": round % 3 == 0, "never": False}
        free = {"empty": 0, "one byte": 1, "one byte later": 1 if round > 9 else sizes.model_bytes}
        size = free.get(self.rule, sizes.model_bytes)
        teacher = (Part("teacher", size, round),) if sent.get(self.rule, True) else ()
        return Downlink((Part("model", sizes.model_bytes, round), *teacher), sizes.blocks)


@pytest.fixture
def taught(monkeypatch):
    """Builds the method with a rule by which the teacher is sent."""

    def made(rule="always", **changes):
        parts = {"objective": Taught, "rule": Sgd, "server": Teaching(), "payload": Sending, **changes}
        recipe = Recipe(summary="", paper="", **{"defaults": {"rule": rule}, **parts})
        name = f"taught{next(NUMBERS)}"  # what is known of a name is kept
        METHODS.names()
        monkeypatch.setitem(METHODS._parts, name, recipe)
        return build_method(name, LOCAL)

    return made


@pytest.mark.parametrize(("rule", "said"), [("never", "no part"), ("every third", "no part"), ("one byte", "1 of its")])
def test_a_teacher_that_a_client_reads_without_having_been_sent_it_is_refused(taught, rule, said):
    for accepted in ("always", "once", "later"):
        taught(accepted)
    with pytest.raises(UserError, match=rf"Sending sends {said} .*'teacher' in round [1-3], so its"):
        taught(rule)


@pytest.mark.parametrize(
    "name", [name for name, recipe in METHODS if recipe.submodels is None and not recipe.objective.trains_last]
)
def test_every_downlink_of_a_built_in_method_has_the_bytes_of_its_broadcasts(name):
    method = build_method({"method": name, "codec": {"down": "cast"}}, LOCAL)
    sizes = encoded_sizes(method.codecs.down, tiny_model().layout)
    broadcasts = Broadcasts(method, sizes)
    for round, held in product(range(12), [None, *range(12)]):
        if held is None or held < round:
            broadcasts.check(method.payload.downlink(sizes, round, None, held), round, held)


@pytest.mark.parametrize("held", [None, 3])
def test_a_downlink_of_any_round_is_checked_in_the_run(taught, held):
    method = taught("one byte later")
    broadcasts = Broadcasts(method, SIZES)
    broadcasts.check(method.payload.downlink(SIZES, 9, None, held), 9, held)
    with pytest.raises(WrongAnswer, match="sends 1 of its 60 bytes in part 'teacher' in round 11"):
        broadcasts.check(method.payload.downlink(SIZES, 10, None, held), 10, held)


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_a_broadcast_is_read_as_a_frozen_model_with_the_received_statistics(taught, engine):
    class Watching(Taught):
        def loss(self, local, batch, context):
            seen.append([dict(block) for block in context.frozen["teacher"]])
            return super().loss(local, batch, context)

    seen = []
    method = replace(taught(), objective=Watching())
    with TrainingCore(TinyData(), tiny_model(), 3, engine=engine, workers=2) as core:
        learner = core.learner(method)
        jobs = [TrainingJob(JobId("m", 3, client, 0), 0, 0, core.model.depth, 2) for client in (0, 1)]
        for job in jobs:
            learner.submit(job)
        learner.aggregate(0, [job.id for job in jobs], 0)
        layout, initial = core.model.layout, core.initial
    half = layout.weights(initial[: layout.parameter_count] / 2, initial[layout.parameter_count :])
    assert seen
    for block, expected in zip(seen[0], half, strict=True):
        assert block.keys() == expected.keys()
        if engine != "batched":  # there they are inside of a transform
            assert all(torch.equal(block[name], tensor) for name, tensor in expected.items())
    assert torch.isfinite(learner.model(1)).all()
