"""What an objective is: a pure function of the local weights, a batch, and a context that lasts the round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from edgefl.learning.component import Component
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.models.layout import Weights


class Batch(NamedTuple):
    """One minibatch on the training device: inputs ``[batch, *sample_shape]`` and labels ``[batch]`` (int64)."""

    inputs: Tensor
    labels: Tensor


class Loss(NamedTuple):
    """What a local step minimises, and the cross-entropy of the local path alone (both scalars).

    The second is what is reported and what GMBS reads as ζ; it needs no gradient.
    """

    total: Tensor
    cross_entropy: Tensor


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a loss may read beside the local weights and the batch.

    Attributes:
        model: the skeleton to call with weights.
        frozen: frozen copies by name: ``"received"`` (the server model θ_t as the client holds it), ``"previous"`` (the
            client's own last local model), or a vector of the server's broadcast; gradients flow through them, and
            nothing updates them: a call with one does not track running statistics.
        vectors: flat vectors by name, e.g. ``"received"`` ``[parameter_count]`` for proximal terms, a client's λ_k.
        client: facts about the client's data by name, e.g. ``"label_counts"`` ``[classes]``.
        alpha: how many of the last blocks are freshly received and have frozen copies; M when the model came whole.
        draws: random inputs of this step by name, as :meth:`Objective.draw` returned them.
    """

    model: BlockModel
    frozen: Mapping[str, Weights]
    vectors: Mapping[str, Tensor]
    client: Mapping[str, Tensor]
    alpha: int
    draws: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(Component):
    """A client's loss; its fields are its options."""

    frozen: ClassVar[frozenset[str]] = frozenset()
    """Names of the models it reads as frozen copies: ``received``, or names of the method's client state
    (``previous``) or server broadcast. One of parameters alone has the buffers of the model that local training starts
    from."""
    vectors: ClassVar[frozenset[str]] = frozenset()
    """Names of the flat vectors it reads: ``received`` or names of the method's client state or server broadcast."""
    client: ClassVar[frozenset[str]] = frozenset()
    """Names of the facts about the client's data it reads: ``label_counts`` (training images of each class, int64
    ``[classes]``), ``relative_size`` (n_k N/n, its training images over the mean of all clients, one number)."""

    side_by_side: ClassVar[bool] = True
    """Whether clients can be trained in one stack, and operators of one step called again in the next; off where a draw
    decides shapes."""

    @abstractmethod
    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """The loss of one batch, differentiable by ``local``."""

    def adapt(self, model: BlockModel) -> BlockModel:
        """The model that this loss trains, by default the scenario's own; MOON puts a projection head into it.

        It is called once, before the first weights are drawn.

        Raises:
            UserError: the loss cannot train this model; the message says why.
        """
        return model

    def evaluation_mode(self, model: BlockModel) -> dict[str, Any]:
        """How the mode of an evaluation differs from the plain one (Stochastic Depth's expectation)."""
        return {}

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        """The random inputs of one step on ``batch`` images (masks, mixing weights); none by default."""
        return {}
