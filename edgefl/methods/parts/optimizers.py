"""Local optimizers besides SGD: Adam, AdamW, Adagrad and RMSprop, as in ``torch.optim``, as algebra on flat vectors.

Every engine and the cost model run these lines; options have torch's names. With ``state: keep`` a client's next job
goes on with the optimizer's state after its last one, which is a client state like SCAFFOLD's.
"""

import math
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, Tag
from torch import Tensor

from edgefl.errors import UserError
from edgefl.input_file import InputCode
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.methods.parts.local_step import LocalRule, Lr, Sgd, clipped, direction, stepped_
from edgefl.methods.parts.step_options import StepOptions
from edgefl.options import Component, kind_or, of_kind
from edgefl.registry import class_of
from edgefl.user_code import UserCode
from edgefl.validation import validated

Fraction = Annotated[float, Field(ge=0, lt=1)]
_LASTING = "the state between a client's jobs: reset starts with zeros, keep goes on with that after its last job"


class KeptState(ClientState):
    """The optimizer's state at the end of the client's last job."""

    rule: SerializeAsAny[LocalRule]

    @property
    def vectors(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.rule.kept

    def first(self, received: Tensor, parameter_count: int) -> State:
        return self.rule.first(received[..., :parameter_count])


class KeptSgd(Sgd):
    """SGD whose momentum continues from the client's last job, as in FedAlign's code, which resets no optimizer."""

    lr_on_device = True
    vectors = frozenset({"velocity"})

    @property
    def kept(self) -> tuple[str, ...]:
        return ("velocity",)

    def client_state(self) -> ClientState | None:
        return KeptState(rule=self)

    def takes(self) -> dict[Need, str]:
        return {"zero momentum": "the optimizer keeps its state"}

    def accept(self, options: StepOptions) -> None:
        if not options.momentum:
            raise UserError("there is no momentum to keep; set local.momentum as well", field="local.optimizer.state")

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        return {"velocity": vectors["velocity"].clone()}


class Optimizer(LocalRule):
    """An adaptive step; its state are vectors, and ``step``, the number of its steps ``[1]``, where it reads it."""

    state: Literal["reset", "keep", "average"] = Field(
        default="reset", description=f"{_LASTING}, average with the mean of the clients', which is sent"
    )
    eps: float = Field(default=1e-8, ge=0, description="added to the denominator")

    @property
    def takes_lr_on_device(self) -> bool:
        return True

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """Names of the state's tensors."""

    @property
    def kept(self) -> tuple[str, ...]:
        return () if self.state == "reset" else self.slots

    @property
    def vectors(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(self.kept)

    def client_state(self) -> ClientState | None:
        return KeptState(rule=self) if self.state == "keep" else None

    def rule(self) -> Self:
        return self

    def accept(self, options: StepOptions) -> None:
        if options.momentum or options.nesterov:
            field = "local.momentum" if options.momentum else "local.nesterov"
            raise UserError("this is an option of SGD; expected those of the optimizer", field=field)

    def first(self, parameters: Tensor) -> State:
        """The state before the first step."""
        return {name: torch.zeros_like(parameters[..., :1] if name == "step" else parameters) for name in self.slots}

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        return self.first(received) if self.state == "reset" else dict(vectors)


class Adam(Optimizer):
    """m ← β1 m + (1-β1) d; v ← β2 v + (1-β2) d²; θ ← θ - η (m/(1-β1^t))/(√(v/(1-β2^t)) + ε) (Kingma and Ba 2015)."""

    kind: Literal["adam"] = "adam"
    betas: tuple[Fraction, Fraction] = Field(default=(0.9, 0.999), description="decays β1, β2 of the two moments")
    amsgrad: bool = Field(default=False, description="divide by the largest second moment so far")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))

    def direction(self, parameters: Tensor, gradient: Tensor, options: StepOptions, lr: Lr) -> Tensor:
        """The gradient of the moments, after clipping and weight decay."""
        return direction(parameters, gradient, options)

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        step, (first, second) = memory["step"].add_(1), self.betas
        gradient = self.direction(parameters, gradient, options, lr)
        counted = torch._C._len_torch_dispatch_stack()  # the cost of a device is that of the lines below
        if parameters.is_cpu and parameters.dim() == 1 and not isinstance(lr, Tensor) and not counted:
            # PyTorch's fused kernel passes over the memory once, the lines below eight times.
            largest = [memory["max_exp_avg_sq"]] if self.amsgrad else []
            torch._fused_adam_(
                [parameters], [gradient], [memory["exp_avg"]], [memory["exp_avg_sq"]], largest, [step],
                lr=lr, beta1=first, beta2=second, weight_decay=0.0, eps=self.eps, amsgrad=self.amsgrad, maximize=False,
            )  # fmt: skip
            return parameters
        mean = memory["exp_avg"].lerp_(gradient, 1 - first)
        square = memory["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        if self.amsgrad:
            square = torch.maximum(memory["max_exp_avg_sq"], square, out=memory["max_exp_avg_sq"])
        # The gradient's memory takes the denominator, then the quotient.
        torch.sqrt(square, out=gradient).mul_(_unbiased(step, second).rsqrt()).add_(self.eps)
        return stepped_(parameters, torch.div(mean, gradient, out=gradient), lr / _unbiased(step, first))


class AdamW(Adam):
    """Adam with decoupled weight decay: θ ← θ - η λ θ before its step (Loshchilov and Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"  # type: ignore[assignment]

    def direction(self, parameters: Tensor, gradient: Tensor, options: StepOptions, lr: Lr) -> Tensor:
        if options.weight_decay:
            for place in options.decayed:
                parameters[..., place].mul_(1 - lr * options.weight_decay)
        return clipped(gradient, options)


class Adagrad(Optimizer):
    """s ← s + d²; θ ← θ - η_t d/(√s + ε) with η_t = η/(1 + (t-1) lr_decay) (Duchi et al. 2011)."""

    kind: Literal["adagrad"] = "adagrad"
    eps: float = Field(default=1e-10, ge=0, description="added to the denominator")
    lr_decay: float = Field(default=0.0, ge=0, description="decay of the rate with the steps of the state")
    initial_accumulator_value: float = Field(default=0.0, ge=0, description="s before the first step")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("step", "sum")

    def first(self, parameters: Tensor) -> State:
        state = super().first(parameters)
        return {**state, "sum": state["sum"] + self.initial_accumulator_value}

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        step = memory["step"].add_(1)
        gradient = direction(parameters, gradient, options)
        total = memory["sum"].addcmul_(gradient, gradient)
        rate = lr / (1 + (step - 1) * self.lr_decay) if self.lr_decay else lr
        return stepped_(parameters, gradient.div_(total.sqrt().add_(self.eps)), rate)


class RMSprop(Optimizer):
    """v ← α v + (1-α) d²; θ ← θ - η d/(√v + ε), with momentum if set (Hinton 2012)."""

    kind: Literal["rmsprop"] = "rmsprop"
    alpha: Fraction = Field(default=0.99, description="decay α of the squares")
    momentum: Fraction = Field(default=0.0, description="momentum of the divided gradients")
    centered: bool = Field(default=False, description="divide by the deviation of the gradient instead")

    @property
    def slots(self) -> tuple[str, ...]:
        others = {"grad_avg": self.centered, "momentum_buffer": self.momentum > 0}
        return ("square_avg", *(name for name, has in others.items() if has))

    def update(self, parameters: Tensor, gradient: Tensor, memory: State, options: StepOptions, lr: Lr) -> Tensor:
        gradient = direction(parameters, gradient, options)
        square = memory["square_avg"].mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        if self.centered:
            mean = memory["grad_avg"].lerp_(gradient, 1 - self.alpha)
            square = square.addcmul(mean, mean, value=-1)
        gradient.div_(square.sqrt().add_(self.eps))
        if self.momentum:
            gradient = memory["momentum_buffer"].mul_(self.momentum).add_(gradient)
        return stepped_(parameters, gradient, lr)


def _unbiased(step: Tensor, beta: float) -> Tensor:
    """1 - β^t, exact also in float32."""
    return -torch.expm1(step * (math.log(beta) if beta else -math.inf))


class PlainSgd(Component):
    """``training.local.optimizer: sgd``; its momentum is an option of ``training.local``."""

    kind: Literal["sgd"] = "sgd"
    state: Literal["reset", "keep"] = Field(default="reset", description=_LASTING)

    def rule(self) -> Sgd:
        return KeptSgd() if self.state == "keep" else Sgd()


class OwnOptimizer(Component):
    """A class of your own, derived from :class:`LocalRule`; ``args`` are its fields."""

    kind: Literal["python"] = "python"
    python: InputCode = Field(description="the class, FILE.py:NAME")
    args: dict[str, Any] = Field(default_factory=dict, description="its options")

    def rule(self) -> LocalRule:
        code = UserCode.of(self.python)
        if not code.allowed():
            return _Unread()
        found = code.load()
        class_of(LocalRule)(found)
        rule: LocalRule = validated(found, self.args, field="local.optimizer.args")
        return rule


class _Unread(Sgd):
    """The optimizer of a run directory's scenario, whose file may not be executed yet."""

    def begin(self, received: Tensor, vectors: State, options: StepOptions, steps: int) -> State:
        raise UserError("its Python file is not executed", field="training.local.optimizer")


def _mapping(value: Any) -> Any:
    if isinstance(value, dict) and "python" in value:
        return {"kind": "python", **value}
    return of_kind(value)


Names = Literal["sgd", "adam", "adamw", "adagrad", "rmsprop"]
_Kinds = Annotated[
    Annotated[PlainSgd, Tag("sgd")]
    | Annotated[Adam, Tag("adam")]
    | Annotated[AdamW, Tag("adamw")]
    | Annotated[Adagrad, Tag("adagrad")]
    | Annotated[RMSprop, Tag("rmsprop")]
    | Annotated[OwnOptimizer, Tag("python")],
    kind_or("sgd"),
]
LocalOptimizer = Annotated[_Kinds, BeforeValidator(_mapping, json_schema_input_type=Names | _Kinds)]
"""The type of ``training.local.optimizer``: a kind, or a mapping with ``kind`` and its options."""
