"""FedGKD: distillation from the mean of the last M global models, which is sent with the model (Yao et al. 2021)."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.kd import taught_by
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.distillation import kl_divergence
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


class FedGKD(Objective):
    """CE + c · T² · KL(softmax(z_teacher/T) ‖ softmax(z/T)) (Yao et al. 2021).

    The teacher's parameters are the vector ``teacher``, the mean of the last global models; its buffers are those of
    the received model. The term is off while the vector ``teaching`` (one number) is zero: in the first round.
    """

    needs = frozenset({"logits"})
    frozen = frozenset({"received"})
    vectors = frozenset({"teacher", "teaching"})

    gamma: float = Field(default=0.1, ge=0, description="weight c of the distillation")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the distillation")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        mean = context.model.layout.weights(context.vectors["teacher"])
        received = context.frozen["received"]
        teacher = tuple({**buffers, **parameters} for buffers, parameters in zip(received, mean, strict=True))
        taught = taught_by(teacher, batch, context)
        distillation = kl_divergence(taught, logits, self.temperature, context.mean(batch.labels))
        weight = self.gamma * self.temperature**2 * context.vectors["teaching"].sum()
        return Loss(cross_entropy + weight * distillation, cross_entropy)


@SERVER_UPDATES.register("fedgkd")
class FedGkdServer(ServerUpdate):
    """θ_{t+1} = θ_t + Σ_k w_k δ_k; teacher = mean of the last M trained models, the newest included (Yao et al. 2021).

    ``teaching`` is one number, 0 in the first round and 1 after it. ``model 1``, ``model 2``, … are the last models,
    newest first. The first model, which nobody has trained, is not one of them, as in the authors' code.
    """

    broadcasts = ("teacher", "teaching")

    buffer: int = Field(default=5, ge=1, description="number M of global models in the teacher")

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        """The mean of one model is that model; ``teaching`` follows from the round number."""
        return {"teacher": "teacher" if self.buffer > 1 else "model", "teaching": None}

    def begin(self, parameters: Tensor) -> State:
        return {"teacher": parameters, "teaching": torch.zeros_like(parameters[:1])}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        after = parameters + arrivals.mean()
        before = [state[f"model {age}"] for age in range(1, self.buffer) if f"model {age}" in state]
        models = [after, *before]
        teacher = torch.stack(models).mean(dim=0)
        kept = {f"model {age}": model for age, model in enumerate(models, start=1)}
        return after, {"teacher": teacher, "teaching": torch.ones_like(parameters[:1]), **kept}


class FedGkdPayload(Payload):
    """The model and, when it differs from the model, the teacher: 2 S down with a buffer of more than one model."""

    buffer: int = Field(default=5, ge=1, description="number M of global models in the teacher")

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        parts = [Part("model", sizes.model_bytes, round)]
        if self.buffer > 1 and round > 0:
            parts.append(Part("teacher", sizes.model_bytes, round))
        return Downlink(tuple(parts), sizes.blocks)


METHODS["fedgkd"] = Recipe(
    summary="FedAvg with distillation from the mean of the last global models",
    paper="Yao et al. 2021 (FedGKD)",
    objective=FedGKD,
    server=FedGkdServer(),
    payload=FedGkdPayload,
)
