"""One local step: the loss, its gradient, and the new parameters by a local rule, such as SGD."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import ClassVar, Literal

import torch
from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.step_options import StepOptions
from edgefl.models.layout import Layout, Weights
from edgefl.models.random_layers import backward_of, drawn_from
from edgefl.options import Component
from edgefl.torch_settings import Precision, computing

Lr = float | Tensor
"""η of a local step: a number or, for rules with :attr:`LocalRule.lr_on_device`, a tensor ``[]`` on the device."""


class LocalRule(Component):
    """The use of the gradient in a local step; its fields are the options in addition to :class:`LocalOptions`.

    All vectors are flat, ``[..., parameter_count]``; a leading dimension contains several clients, so a rule must
    reduce over the last dimension only. ``memory`` is the rule's local optimizer state, created by :meth:`begin`.
    """

    vectors: ClassVar[frozenset[str]] = frozenset()
    """Names of the server or client-state vectors it reads, e.g. ``momentum`` for FedADC."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it cannot do without; see :mod:`edgefl.methods.fits`."""

    lr_on_device: ClassVar[bool] = False
    """``lr`` may also be a tensor ``[]`` on the device, so that recorded steps serve rounds of other rates.

    A subclass does not inherit it, because its own steps may need a number.
    """

    @property
    def takes_lr_on_device(self) -> bool:
        """True if this class itself sets :attr:`lr_on_device`."""
        return bool(vars(type(self)).get("lr_on_device"))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names in the rule's ``memory`` that the client keeps after the job, for :meth:`client_state`."""
        return ()

    def client_state(self) -> ClientState | None:
        """The client state of this rule, in addition to the method's; none by default."""
        return None

    def first(self, parameters: Tensor) -> State:
        """The state of its :attr:`kept` names before a client's first job; zeros by default."""
        return {name: torch.zeros_like(parameters) for name in self.kept}

    def takes(self) -> dict[Need, str]:
        """What it takes from other parts, with the reasons; by default, its steps may have any weight."""
        return {} if type(self).update is Sgd.update else {"known steps": f"{type(self).__name__} has steps of its own"}

    def accept(self, options: StepOptions) -> None:
        """Check the local options; by default, all fit this rule."""

    @abstractmethod
    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        """The ``memory`` before the first step of a job of ``steps`` local steps."""

    def point(self, parameters: Tensor, memory: State, lr: Lr) -> Tensor:
        """The point at which the gradient is computed; by default the parameters. A rule may look ahead."""
        return parameters

    @abstractmethod
    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        """The next parameters, given the gradient at :meth:`point`, which it may overwrite, and η_t; or in place."""


Phase = Literal["forward", "backward", "update"]
"""In order; the look-ahead point (``rule.point``) belongs to the forward phase."""


class Leaves:
    """The tensors with respect to which losses are differentiated; reused as long as the vector is the same.

    A rule that updates in place keeps the vector, so a job's views of it are created once and not in every step.
    ``front`` are the parameters of the blocks before block ``first`` (0-based), which are not trained; the vector of
    the parameters then has only those of the later blocks.
    """

    def __init__(self, layout: Layout, front: Tensor | None = None, first: int = 0) -> None:
        self._layout = layout
        self._front, self._first = front, first
        self._trained = [entry for entry in layout.parameters if entry.block >= first]
        self._of: tuple[Tensor, Tensor] | None = None
        self._weights: Weights = ()
        self._parameters: list[Tensor] = []

    def at(self, point: Tensor, buffers: Tensor) -> Weights:
        """The tensors of the parameters ``[parameter_count]`` and of the buffers, which share their memory."""
        if self._of is None or self._of[0] is not point or self._of[1] is not buffers:
            # .data instead of detach(): parameters and buffers may be parts of one vector, and the running statistics,
            # which the forward pass changes in place, must not invalidate the parameters' views.
            self._weights = self._layout.weights(point.data, buffers, front=self._front, first=self._first)
            self._parameters = [self._weights[entry.block][entry.name] for entry in self._trained]
            for tensor in self._parameters:
                tensor.requires_grad_()
            self._of = point, buffers
        return self._weights

    def gradient(self, loss: Tensor, added: Tensor | None = None, *, backward: bool = False) -> Tensor:
        """The gradient ``[parameter_count]`` of a loss at the last point of :meth:`at`; a new vector.

        If there is a gradient to which it is ``added``, in place, that one is returned.

        A loss that does not depend on the parameters has gradient zero. ``backward``: by ``loss.backward()``, which
        activation checkpointing with ``use_reentrant=True`` needs.
        """
        if loss.requires_grad and backward:
            backward_of(loss)
            found = [(tensor, tensor.grad) for tensor in self._parameters]
            pieces = tuple(torch.zeros_like(tensor) if each is None else each for tensor, each in found)
            for tensor in self._parameters:
                tensor.grad = None
        elif loss.requires_grad:
            pieces = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        else:
            pieces = tuple(torch.zeros_like(tensor) for tensor in self._parameters)
        flat = [entry.flat(piece) for entry, piece in zip(self._trained, pieces, strict=True)]
        if added is None:
            return torch.cat(flat)
        for place, piece in zip(torch.split(added, [len(each) for each in flat]), flat, strict=True):
            place.add_(piece)
        return added


class Trained:
    """The part of a job's parameters that its client trains: all, or those of the last ``alpha`` blocks."""

    def __init__(self, objective: Objective, layout: Layout, alpha: int, parameters: Tensor) -> None:
        self.first = len(layout.block_names) - alpha if objective.trains_last else 0
        count, self.buffers_before = layout.before(self.first)
        self.parameters = parameters[count:] if self.first else parameters
        self.front = parameters[:count] if self.first else None
        self.leaves = Leaves(layout, self.front, self.first)


def checked_loss(answer: object) -> Loss:
    """What :meth:`Objective.loss` returned, if it can be differentiated."""
    numbers = answer if isinstance(answer, Loss) else ()
    if not numbers or not all(isinstance(each, Tensor) and not each.dim() for each in numbers):
        shapes = [list(each.shape) if isinstance(each, Tensor) else one_line(each) for each in numbers]
        found = f"Loss of shapes {shapes}" if numbers else one_line(answer)
        raise WrongAnswer(f"its loss returned {found}; expected Loss(total, cross_entropy), each of shape [], a mean")
    return numbers


def minibatches(batch: Batch, options: StepOptions, dim: int = 0) -> list[tuple[float, Batch]]:
    """The minibatches of a local step, whose gradients are added up, and each one's share of the step's samples.

    >>> from edgefl.methods.parts.local_options import LocalOptions
    >>> batch = Batch(torch.ones(5, 1), torch.ones(5))
    >>> [share for share, _ in minibatches(batch, LocalOptions(batch=2, accumulate=3))]
    [0.4, 0.4, 0.2]
    """
    if options.accumulate == 1:
        return [(1.0, batch)]
    parts = zip(*(torch.split(each, options.batch, dim) for each in batch), strict=True)
    return [(labels.shape[dim] / batch.labels.shape[dim], Batch(inputs, labels)) for inputs, labels in parts]


def weighted(value: Tensor, share: float) -> Tensor:
    """The value times its share."""
    return value if share == 1 else value * share


def local_step(  # noqa: PLR0917  (a step is made of this many things; they come in the order of use)
    objective: Objective,
    rule: LocalRule,
    parameters: Tensor,
    buffers: Tensor,
    batch: Batch,
    context: Context,
    memory: State,
    options: StepOptions,
    lr: float,
    *,
    draw: Callable[[int], Mapping[str, Tensor]] | None = None,
    leaves: Leaves | None = None,
    precision: Precision = "float32",
    entering: Callable[[Phase], object] = lambda _: None,
) -> tuple[Tensor, Loss]:
    """Run one local step.

    ``parameters`` ``[parameter_count]`` may be changed in place by the rule, as may its local optimizer state
    ``memory``; batch norm's running statistics in ``buffers`` ``[buffer_count]`` are updated in place. ``lr`` is η_t of
    the round; ``draw`` returns the random inputs of so many samples, if not those of the ``context``; ``leaves`` are
    those of the job's earlier steps; ``entering`` is called at the start of each phase.

    The gradient is that of the mean loss of all samples: those of the minibatches, weighted by their shares.

    Returns:
        The parameters after the step ``[parameter_count]``, and the detached loss at the gradient's point.
    """
    entering("forward")
    leaves = Leaves(context.model.layout) if leaves is None else leaves
    weights, again = leaves.at(rule.point(parameters, memory, lr), buffers), context.model.recomputes
    gradient: Tensor | None = None
    losses: list[list[Tensor]] = []
    for number, (share, part) in enumerate(minibatches(batch, options)):
        if number:
            entering("forward")
        here = context if draw is None else replace(context, draws=draw(part.labels.shape[0]))
        with context.model.held(), drawn_from(here.draws, recomputes=again):
            with computing(precision, batch.labels.device):
                loss = checked_loss(objective.loss(weights, part, here))
            entering("backward")
            gradient = leaves.gradient(weighted(loss.total, share), gradient, backward=again)
        losses.append([weighted(each.detach(), share) for each in loss])
    assert gradient is not None
    entering("update")
    loss = Loss(*(reduce(torch.add, each) for each in zip(*losses, strict=True)))
    return rule.update(parameters, gradient, memory, options, lr), loss


def stepped_(parameters: Tensor, step: Tensor, lr: Lr) -> Tensor:
    """θ - η d, in place; η may be a tensor ``[]`` on the device.

    >>> import torch
    >>> stepped_(torch.ones(2), torch.ones(2), 0.5), stepped_(torch.ones(2), torch.ones(2), torch.tensor(0.5))
    (tensor([0.5000, 0.5000]), tensor([0.5000, 0.5000]))
    """
    if isinstance(lr, Tensor):
        return parameters.addcmul_(step, lr, value=-1)
    return parameters.sub_(step, alpha=lr)


def clipped(gradient: Tensor, options: StepOptions) -> Tensor:
    """The gradient, clipped in place to an L2 norm of at most ``clip_norm`` (``torch.nn.utils.clip_grad_norm_``)."""
    if options.clip_norm is None:
        return gradient
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient.mul_((options.clip_norm / (norm + 1e-6)).clamp(max=1.0))


def direction(parameters: Tensor, gradient: Tensor, options: StepOptions) -> Tensor:
    """The clipped gradient plus coupled weight decay, in place; weight decay is added after clipping."""
    gradient = clipped(gradient, options)
    if options.weight_decay:
        for place in options.decayed:
            gradient[..., place].add_(parameters[..., place], alpha=options.weight_decay)
    return gradient


class Sgd(LocalRule):
    """θ ← θ - η_t d, d the clipped gradient plus weight decay, with (Nesterov) momentum from zero in each round."""

    lr_on_device = True

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        return {"velocity": torch.zeros_like(received)} if options.momentum else {}

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        """One step of ``torch.optim.SGD``, in place, because newly allocated memory takes ten times as long."""
        step = direction(parameters, gradient, options)
        if options.momentum:
            velocity = memory["velocity"].mul_(options.momentum).add_(step)
            step = step.add(velocity, alpha=options.momentum) if options.nesterov else velocity
        return stepped_(parameters, step, lr)
