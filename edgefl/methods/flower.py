"""The strategies of the library Flower as server updates: edgefl trains, the strategy aggregates."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator
from torch import Tensor

from edgefl.errors import UserError, WrongAnswer, nearest, optional
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.server import SERVER_UPDATES, Arrivals, RoundFacts, ServerUpdate, Weighting
from edgefl.options import Options
from edgefl.validation import validated

KEPT: dict[str, tuple[str, ...]] = {
    "Bulyan": (),
    "FedAdagrad": ("m_t", "v_t"),
    "FedAdam": ("m_t", "v_t"),
    "FedAvg": (),
    "FedAvgM": ("momentum_vector",),
    "FedMedian": (),
    "FedTrimmedAvg": (),
    "FedYogi": ("m_t", "v_t"),
    "Krum": (),
    "MultiKrum": (),
    "QFedAvg": (),
}
"""The supported strategies, and the attributes in which each keeps arrays from round to round."""

_OF_THE_MEAN = frozenset({"FedAdagrad", "FedAdam", "FedAvg", "FedAvgM", "FedYogi"})

_ELSEWHERE = frozenset(
    (
        *("arrayrecord_key", "client_learning_rate", "configrecord_key", "eta_l", "evaluate_metrics_aggr_fn"),
        *("fraction_evaluate", "fraction_train", "min_available_nodes", "min_evaluate_nodes", "min_train_nodes"),
        *("selection_rule", "train_loss_key", "train_metrics_aggr_fn", "weighted_by_key"),
    )
)
"""Arguments of strategies that are not options here: edgefl selects, evaluates, and sets the clients' rate."""

_BOUNDS: dict[str, Any] = {
    "beta": Field(ge=0, lt=0.5),
    "beta_1": Field(ge=0, lt=1),
    "beta_2": Field(ge=0, lt=1),
    "eta": Field(gt=0),
    "num_malicious_nodes": Field(ge=0),
    "num_nodes_to_select": Field(ge=1),
    "q": Field(ge=0),
    "server_learning_rate": Field(gt=0),
    "server_momentum": Field(ge=0, lt=1),
    "tau": Field(gt=0),
}
"""The ranges in which the formulas make sense; Flower checks only ``beta``."""

_PARAMETERS, _WEIGHT, _LOSS = "parameters", "num-examples", "train_loss"
"""Names in the messages: the one array with all parameters, and the two metrics of a client."""


@SERVER_UPDATES.register("flower")
class FlowerStrategy(ServerUpdate):
    """A strategy of ``flwr.serverapp.strategy`` by its name, with its options (extra ``flower``).

    In each round, a new object of the strategy is given its arrays of the last round, the model θ_t, and a reply of
    each client: θ_t + δ_k as one array, the client's weight and its loss. So a strategy has no state except these
    arrays, which are saved like those of every server update. ``server_round`` begins with 1.

    The options are the strategy's own, and are fields of this object.
    """

    model_config = ConfigDict(extra="allow")

    packages: ClassVar[tuple[str, ...]] = ("flwr",)
    default_weighting: ClassVar[Weighting | None] = "samples"

    flower: str = Field(description="the strategy's name, such as FedTrimmedAvg", json_schema_extra={"enum": [*KEPT]})

    @field_validator("flower")
    @classmethod
    def _supported(cls, name: str) -> str:
        if name not in KEPT:
            raise UserError(
                f"unknown strategy '{name}'; {nearest(name, KEPT)} (others: in a Flower app)", field="flower"
            )
        return name

    @model_validator(mode="after")
    def _checked_options(self) -> FlowerStrategy:
        given = self.model_extra if self.model_extra is not None else {}
        given.update(validated(_options_of(self.flower), given).model_dump())
        return self

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        return frozenset(() if self.flower in _OF_THE_MEAN else {"each update", "whole model"})

    def begin(self, parameters: Tensor) -> State:
        return {name: torch.zeros_like(parameters) for name in KEPT[self.flower]}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        """The strategy's next parameters and arrays."""
        import flwr.app as flwr

        def record(vector: Tensor) -> Any:
            return flwr.ArrayRecord({_PARAMETERS: flwr.Array(vector.cpu().numpy())})

        with _quiet_flower():
            strategy = self._strategy(facts.lr)
            for name, vector in state.items():
                array = vector.cpu().numpy()
                setattr(strategy, name, [array] if name == "momentum_vector" else {_PARAMETERS: array})
            # It keeps the current model. No grid is needed, because fraction_train is 0: no node is sampled.
            strategy.configure_train(facts.round + 1, record(parameters), flwr.ConfigRecord(), None)
            before = dict(vars(strategy))
            replies = [
                _reply(record(parameters + move), float(weight), each.loss)
                for each, move, weight in zip(arrivals, arrivals.scaled(), arrivals.weights, strict=True)
            ]
            aggregated, _ = strategy.aggregate_train(facts.round + 1, replies)
        changed = {name for name, value in vars(strategy).items() if value is not before.get(name)}
        if lost := sorted(changed - {"current_arrays", *KEPT[self.flower]}):
            raise WrongAnswer(f"Flower's {self.flower} keeps {', '.join(lost)} between rounds, which cannot be saved")
        if aggregated is None:
            warnings.warn(
                f"Flower's {self.flower} does not aggregate {len(arrivals)} result(s) in a round, too few for its "
                "options: the model does not change",
                stacklevel=1,  # from one place, so that it is shown once
            )
            return parameters, state
        kept = {name: _tensor(_array(getattr(strategy, name)), vector) for name, vector in state.items()}
        return _tensor(aggregated[_PARAMETERS].numpy(), parameters), kept

    def _strategy(self, lr: float) -> Any:
        made = _strategy_class(self.flower)
        options = dict(self.model_extra or {})
        if "client_learning_rate" in inspect.signature(made).parameters:
            options["client_learning_rate"] = lr
        return made(fraction_train=0.0, **options)


def _strategy_class(name: str) -> Any:
    return getattr(optional("flwr.serverapp.strategy", "flower", field="flower"), name)


def _options_of(name: str) -> type[BaseModel]:
    """The numbers among the arguments of the strategy's constructor."""
    fields: dict[str, Any] = {}
    for option, argument in inspect.signature(_strategy_class(name), eval_str=True).parameters.items():
        kind: Any = argument.annotation
        if option not in _ELSEWHERE and kind in (int, float):
            bounds = _BOUNDS.get(option, Field()), Field(allow_inf_nan=False)
            fields[option] = (Annotated[kind, *bounds], argument.default)
    return create_model(name, __base__=_StrategyOptions, **fields)


class _StrategyOptions(Options):
    @model_validator(mode="before")
    @classmethod
    def _set_elsewhere(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        for option in given:
            if option in _ELSEWHERE:
                raise UserError("edgefl decides this itself (training, evaluation); remove the key", field=option)
        return given


def _reply(arrays: Any, weight: float, loss: float) -> Any:
    import flwr.app as flwr
    from flwr.app.message import make_message

    metrics = flwr.MetricRecord({_WEIGHT: weight, _LOSS: loss})
    nobody = {"run_id": 0, "message_id": "", "src_node_id": 0, "dst_node_id": 0, "reply_to_message_id": ""}
    metadata = flwr.Metadata(**nobody, group_id="", created_at=0.0, ttl=0.0, message_type=flwr.MessageType.TRAIN)
    return make_message(metadata, flwr.RecordDict({"arrays": arrays, "metrics": metrics}))


def _array(kept: Any) -> NDArray[Any] | None:
    """None if the strategy has not used the attribute."""
    return None if kept is None else (kept[_PARAMETERS] if isinstance(kept, dict) else kept[0])


def _tensor(array: NDArray[Any] | None, like: Tensor) -> Tensor:
    """Some strategies compute in float64 in between."""
    return like if array is None else torch.from_numpy(np.array(array)).to(like)


@contextmanager
def _quiet_flower() -> Iterator[None]:
    """Flower logs every aggregation; edgefl's own log has it, too."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
