"""The base class of objectives, the losses of clients, and what each is given."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from edgefl.fleet import DeviceProfile
from edgefl.methods.fits import Need, Requirement, check
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.options import Component


class Batch(NamedTuple):
    """A minibatch on the training device: inputs ``[batch, *sample_shape]``, and labels as the task states."""

    inputs: Tensor
    labels: Tensor


class Loss(NamedTuple):
    """The loss that a step minimises, and the reported one of the local path (scalars), which GMBS reads as ζ."""

    total: Tensor
    cross_entropy: Tensor


class Variant(NamedTuple):
    """A kind of step: its share, and its random inputs. Shares sum to 1; one may be 0, for memory alone.

    Work is linear in what a step executes, so only each part's probability must be right, not that of a whole step.
    """

    share: float
    draws: Mapping[str, Tensor]


CLIENT_FACTS = ("label_counts", "relative_size", "round")


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a loss, except the local weights and the batch."""

    model: BlockModel
    # frozen copies by name: "received" (the server model θ_t at the client), "previous" (the client's own last local
    # model), or a vector of the server's broadcast. Gradients flow through them, but they are never updated: a call
    # with one does not track running statistics.
    frozen: Mapping[str, Weights]
    # flat vectors by name, e.g. "received" [parameter_count] for proximal terms, a client's λ_k.
    vectors: Mapping[str, Tensor]
    client: Mapping[str, Tensor]  # facts about the client and its job by name, e.g. "label_counts" [classes].
    alpha: int  # number of the last blocks that were just received and have frozen copies; M for the whole model
    draws: Mapping[str, Tensor] = field(default_factory=dict)  # random inputs of this step by name, from draw

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The task's mean loss of a batch: cross-entropy for classification."""
        return self.model.task.mean_loss(outputs, labels)

    def mean(self, labels: Tensor) -> Callable[[Tensor], Tensor]:
        """The mean of one number for each label of a batch, over the labels that count."""
        return partial(self.model.task.mean, labels=labels)


class Objective(Component):
    """A client's loss; its fields are its options."""

    frozen: ClassVar[frozenset[str]] = frozenset()
    """Names of the models it reads as frozen copies: ``received``, or names of the method's client state (``previous``)
    or server broadcast. If a vector has only parameters, the buffers are those of the model that local training starts
    from."""
    vectors: ClassVar[frozenset[str]] = frozenset()
    """Names of the flat vectors it reads: ``received`` or names of the method's client state or server broadcast."""
    client: ClassVar[frozenset[str]] = frozenset()
    """Names of the facts about the client and its job it reads: ``label_counts`` (training images of each class, int64
    ``[classes]``), ``relative_size`` (n_k N/n, its training images over the mean of all clients, one number), ``round``
    (of the job, from 0, int64, one number)."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it needs of a model and its task; see :mod:`edgefl.methods.fits`."""

    trains_last: ClassVar[bool] = False
    """A client that gets α blocks receives the whole model, and trains and returns only its last α blocks."""

    side_by_side: ClassVar[bool] = True
    """Clients can be trained in one stack, and steps traced and replayed; false if a random draw decides shapes."""

    @property
    def blocks_end_in_time(self) -> bool:
        """With ``trains_last``: true if α is the most blocks that are predicted to end in time, not a share of all."""
        return False

    @property
    def proximal_weight(self) -> float | None:
        """μ of a term (μ/2)‖θ - θ_t‖² of the loss; 0 without one, and None if it is not known."""
        return None if "received" in self.vectors else 0.0

    @abstractmethod
    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """The loss of one batch, differentiable with respect to ``local``."""

    evaluates_clients: ClassVar[bool] = False
    """The metric is the mean over the clients' own models, not that of the server's model."""

    @property
    def server(self) -> DeviceProfile | None:
        """The device that trains on all clients' data in their place, without transfers; None: the clients train."""
        return None

    def adapt(self, model: BlockModel) -> BlockModel:
        """The model that this loss trains, before weights are drawn: the scenario's; MOON adds a projection head."""
        check([Requirement(type(self).__name__, self.needs)], _taken_by(model))
        return model

    def evaluation_mode(self, model: BlockModel) -> dict[str, Any]:
        """The differences of the evaluation mode from the plain one (Stochastic Depth's expectation)."""
        return {}

    def variants(self, model: BlockModel) -> Sequence[Variant]:
        """Steps of different operators, whose mean is the cost and whose largest the memory; empty: all are alike."""
        return ()

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        """The random inputs of one step on ``batch`` images (masks, mixing weights); none by default."""
        return {}


def _taken_by(model: BlockModel) -> dict[Need, str]:
    """What a model and its task do not have."""
    task, whole = model.task, f": {model.whole}" if model.whole else ""
    several = len(task.output_shape(model.classes, model.sample_shape)) > 1
    lacking: dict[Need, tuple[bool, str]] = {
        "classes": (not task.classes, f"task '{task.kind}' has none; expected task: classification"),
        "logits": (not task.logits, f"task '{task.kind}' has none; expected task: classification or language_model"),
        "features": (several, f"task '{task.kind}' has one for each place"),
        "images": (len(model.sample_shape) != 3, f"this model takes inputs of the shape {list(model.sample_shape)}"),
        "blocks": (model.depth < 2, f"this model is one block{whole}"),
        "depths": (model.depth < 3, f"this model has {model.depth}{whole}"),
        "widths": (not model.slimmable, "this model's cannot; use a model of edgefl (edgefl models)"),
        "residual blocks": (not model.residual_count, "this model has none; use a resnet"),
    }
    return {need: reason for need, (lacks, reason) in lacking.items() if lacks}
