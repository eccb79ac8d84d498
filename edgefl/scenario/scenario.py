"""The contents of a scenario file. Each component has its own specification; this module combines them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from edgefl.data.attackers import Malicious, attack_of
from edgefl.data.spec import DataSpec
from edgefl.errors import UserError, nearest
from edgefl.fleet import FleetGroup, group_counts
from edgefl.fleet import resolve as with_profile
from edgefl.fleet.prices import FleetPrices, Start
from edgefl.input_file import parts_of
from edgefl.methods.build import build_method
from edgefl.methods.fits import Need, Requirement, check
from edgefl.network.specs import NetworkSpec
from edgefl.options import Options
from edgefl.privacy.spec import Privacy
from edgefl.record.figures import PRICED, PRIVATE, Quantity, declare
from edgefl.record.metric import Metric
from edgefl.registry import Unread
from edgefl.scenario.components import Data, Model, Task, built_at, errors_at
from edgefl.scenario.methods import Methods, ScenarioMethod
from edgefl.scenario.sections import (
    Budgets,
    EvaluationSpec,
    FigureSpec,
    Published,
    SweepSpec,
    Target,
    TrainingSpec,
    check_targets,
    quantity_of,
    values_of,
)
from edgefl.scheduling.selection.fixed import Fixed
from edgefl.simulation.accounts import BudgetSpec
from edgefl.simulation.cost_specs import AnyOverhead, CostSpec, MeasuredCost, RoundOverhead, SecondsCost
from edgefl.simulation.presence import Crash, Failures
from edgefl.simulation.protocols.base import AnyProtocol
from edgefl.simulation.protocols.synchronous import SynchronousSpec
from edgefl.tasks.classification import Classification
from edgefl.training.personalisation import CalibrationSpec
from edgefl.validation import first_repeated, validated

NAME = r"^[A-Za-z0-9][A-Za-z0-9+_.-]{0,99}$"
"""Names that are valid for a folder: letters, digits, + - _ . and no leading dot."""


def check_world(scenario: Any, metric: Metric) -> None:
    """Check the limits, the failures and the links of a scenario of own methods or of a Flower app."""
    check_targets(scenario.targets, metric)
    for field, values in (("seeds", scenario.seeds), ("targets", values_of(scenario.targets))):
        if (repeated := first_repeated(values)) is not None:
            raise UserError(f"expected different {field}, found {repeated[0]} twice", field=f"{field}.{repeated[1]}")
    if scenario.stop == "target" and not scenario.targets:
        raise UserError("expected at least one target because of stop: target, found none", field="targets")
    clients, links = scenario.data.clients, scenario.network.links
    for index, failure in enumerate(scenario.failures):
        if isinstance(failure, Crash) and failure.client >= clients:
            message = f"expected a client from 0 to {clients - 1}, found {failure.client}"
            raise UserError(message, field=f"failures.{index}.client")
    for index, group in enumerate(scenario.fleet):
        if group.link not in links:
            hint = nearest(group.link, links)
            raise UserError(f"no link '{group.link}' in network.links; {hint}", field=f"fleet.{index}.link")


class Scenario(Options):
    """One comparison: everything it depends on, except edgefl itself and the files of the data set."""

    name: str = Field(pattern=NAME, description="the scenario's name; also the run directory's default name")
    seeds: tuple[Annotated[int, Field(ge=0, le=2**53)], ...] = Field(
        default=(0,), min_length=1, max_length=10_000, description="each method runs once with each of them"
    )
    task: Task = Field(
        default_factory=Classification, description="what the model is trained for: a kind, or a kind and its options"
    )
    data: Data = Field(description="the data set, and how it is distributed over the clients")
    model: Model = Field(description="the model to train: its name and options")
    training: TrainingSpec = Field(description="rounds, cohort, and a client's local training")
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec, description="when, and on which data")
    protocol: AnyProtocol = Field(default_factory=SynchronousSpec, description="how rounds run")
    personalisation: CalibrationSpec | None = Field(
        default=None, description="how each client adapts the final model; needs data.test: partitioned"
    )
    fleet: tuple[FleetGroup, ...] = Field(min_length=1, description="groups of clients with the same device and link")
    network: NetworkSpec = Field(description="the graph, and the clients' links by name")
    round_overhead: AnyOverhead = Field(
        default=RoundOverhead(),
        description="the framework's own time in a round: none, a kind (flower, flower-grpc), or seconds",
    )
    privacy: Privacy = Field(
        default_factory=Privacy, description="secure aggregation and differential privacy, with their costs"
    )
    failures: Failures = Field((), description="crashes and outages at given times; malicious: clients that attack")
    cost: CostSpec = Field(default_factory=MeasuredCost, description="how FLOPs and seconds of training are determined")
    methods: Methods = Field(description="the methods to compare: names, or mappings with options")
    targets: tuple[Target, ...] = Field(
        default=(),
        description="accuracies in (0, 1], or values of the task's metric; time, bytes, joules and rounds to each are "
        "reported",
    )
    target_metric: Literal["accuracy", "accuracy_ema", "metric", "metric_ema"] = Field(
        default="accuracy",
        description="what targets refer to: the task's metric (accuracy and metric mean the same), or its moving "
        "average (0.9)",
    )
    keep_models: Literal["none", "server", "clients"] = Field(
        default="server",
        description="models that a finished run keeps: none, the last server model, or also the local models that were "
        "averaged into it",
    )
    figures: tuple[FigureSpec | str, ...] = Field(
        default=(), description="quantities of your own, from Python files or plug-ins, that runs charge and report"
    )
    start: Start | None = Field(
        default=None, description="when the run begins, with the offset from UTC: 2026-03-28T18:00+01:00"
    )
    prices: FleetPrices | None = Field(
        default=None, description="CO2 and price of energy, price of traffic: runs charge grams and euros"
    )
    budgets: Budgets = Field(default_factory=Budgets, description="limits on what a run may spend")
    stop: Literal["budget", "rounds", "target"] = Field(
        default="budget",
        description="budget: at the first exhausted budget; target: also when every target is reached; "
        "rounds: after all rounds, reporting the accuracy at each budget",
    )

    sweep: SweepSpec | None = Field(default=None, description="the settings that `edgefl sweep` tries")
    published: tuple[Published, ...] = Field(default=(), description="what a paper reports of this experiment")

    @field_validator("targets", "budgets", mode="before")
    @classmethod
    def _null_is_none(cls, value: Any, info: Any) -> Any:
        if value is not None:
            return value
        return () if info.field_name == "targets" else {}

    @field_validator("data")
    @classmethod
    def _labels_for_the_task(cls, data: DataSpec, info: ValidationInfo) -> DataSpec:
        task = info.data.get("task")
        with errors_at("data"):
            return data if task is None else data.for_task(task)

    @field_validator("fleet")
    @classmethod
    def _embed_profiles(cls, groups: tuple[FleetGroup, ...]) -> tuple[FleetGroup, ...]:
        return tuple(with_profile(group, field=f"fleet.{index}") for index, group in enumerate(groups))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if any(isinstance(part, Unread) for part in parts_of(self)):
            return self  # the scenario of a run directory, which was checked when the run began
        self._check_lists()
        self._check_cohort()
        group_counts(self.fleet, self.data.clients)
        self._check_fits()
        return self

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities of its figures, without those whose files may not be executed."""
        found = []
        for index, each in enumerate(self.figures):
            with built_at(f"figures.{index}"):
                found.append(quantity_of(each))
        own = [*(PRICED[name] for name in self.priced), *(PRIVATE.values() if self.privacy.accounts else ())]
        return [*(each for each in found if each is not None), *map(declare, own)]

    @property
    def priced(self) -> list[str]:
        """The quantities that its prices charge."""
        fleet = [self.prices, *(group.prices for group in self.fleet)]
        found = {"": fleet, "server_": [None if self.prices is None else self.prices.server]}
        needs = {"grams": ("carbon",), "euros": ("energy", "traffic")}
        return [
            f"{whose}{name}"
            for whose, prices in found.items()
            for name, options in needs.items()
            if any(getattr(each, option, None) is not None for each in prices for option in options)
        ]

    def _check_prices(self) -> None:
        start, base = self.start and datetime.fromisoformat(self.start), self.prices or FleetPrices()
        for index, group in enumerate(self.fleet):
            own = group.prices is not None
            with errors_at(f"fleet.{index}.prices" if own else "prices"):
                base.rates(group.prices, group.link, start or None, group.timezone)
        for each in (base, *(group.prices for group in self.fleet)):
            for name in each.traffic if each is not None and isinstance(each.traffic, dict) else ():
                if name not in self.network.links:
                    raise UserError(f"no link '{name}'; {nearest(name, self.network.links)}", field="prices.traffic")
        with errors_at("prices.server"):
            (base.server or FleetPrices()).rates(None, "server", start or None, None)
        for name in [name for name in PRICED if name in self.budgets.limits() and name not in self.priced]:
            raise UserError(f"expected prices, which runs charge {name} by", field=f"budgets.{name}")

    def _check_lists(self) -> None:
        self._check_prices()
        known = [*BudgetSpec.model_fields, *(each.name for each in self.quantities if each.limit)]
        if len(self.quantities) - len(self.priced) - self.privacy.accounts == len(
            self.figures
        ):  # else it is not executed
            for name in self.budgets.model_extra or ():
                if name not in known:
                    raise UserError(f"unknown key; {nearest(name, known)}", field=f"budgets.{name}")
        check_world(self, self.task.measured)
        evaluation = self.evaluation
        if evaluation.on in ("server", "both") and self.training.server is None:
            raise UserError("the server's seconds need its device: expected training.server", field="evaluation.on")
        if evaluation.on is not None and not self.protocol.has_rounds:
            message = f"clients with protocol.kind {self.protocol.kind} wait for no common round; expected null"
            raise UserError(message, field="evaluation.on")
        if self.personalisation is not None and self.data.test != "partitioned":
            message = f"tests each client on its own part, so data.test must be 'partitioned', found '{self.data.test}'"
            raise UserError(message, field="personalisation")

    def _check_cohort(self) -> None:
        cohort, clients = self.training.cohort, self.data.clients
        if cohort > clients:
            raise UserError(f"expected at most data.clients ({clients}), found {cohort}", field="training.cohort")
        if (most := self.protocol.under_way(cohort)) > clients:
            message = f"expected at most data.clients ({clients}) at one time, found {most}"
            raise UserError(message, field=self.protocol.under_way_by)
        if (attacks := sum(isinstance(each, Malicious) for each in self.failures)) > 1:
            raise UserError(f"expected one entry malicious, found {attacks}", field="failures")
        if (attack := attack_of(self.failures)) is not None and not attack.count(clients):
            raise UserError(f"{attack.share:g} of {clients} clients is none", field="failures.malicious.share")
        spec = self.training.selection.spec
        if isinstance(spec, Fixed) and spec.clients is not None:
            field = "training.selection.clients"
            if max(spec.clients) >= clients:
                raise UserError(f"expected clients from 0 to {clients - 1}, found {max(spec.clients)}", field=field)
            if len(spec.clients) < cohort:
                message = f"expected at least training.cohort ({cohort}) clients, found {len(spec.clients)}"
                raise UserError(message, field=field)
        if (secure := self.privacy.secure_aggregation) is not None:
            with errors_at("privacy.secure_aggregation"):
                secure.check(min(self.protocol.under_way(cohort), clients))
        local = self.training.local
        if local.epochs is not None and local.steps is not None:
            raise UserError("expected either epochs or steps, found both", field="training.local.steps")

    def _check_fits(self) -> None:
        """Check what fits with what; see :mod:`edgefl.methods.fits`."""
        training, protocol, early = self.training, self.protocol, dict[Need, str]()
        selection, bandwidth = training.selection.name, training.bandwidth
        with built_at("training.selection"):
            selector = training.selection.spec.start(self.seeds[0])
            selector.check_reads()
        task: dict[Need, str] = {} if self.task.classes else {"classes": f"task '{self.task.kind}' has none"}
        world: dict[Need, str] = {**self._taken_by_network(), **protocol.takes(), **task}
        selects: frozenset[Need] = selector.needs() | (frozenset() if selection == "uniform" else {"server"})
        parts = [
            Requirement(f"selection '{selection}'", selects, "training.selection.kind"),
            Requirement(f"bandwidth '{bandwidth.name}'", bandwidth.spec.needs, "training.bandwidth.kind"),
            Requirement(f"protocol '{protocol.kind}'", protocol.needs, "protocol.kind"),
        ]
        if (attack := attack_of(self.failures)) is not None:
            parts.append(Requirement("an attack", frozenset({"server"}), "failures"))
        if attack is not None and attack.kind == "label_flip":
            parts.append(Requirement("an attack by label_flip", frozenset({"classes"}), "failures"))
        if self.personalisation is not None and self.personalisation.self_confidence:
            parts.append(Requirement("self-confidence", frozenset({"classes"}), "personalisation.self_confidence"))
        check([*parts, *self.privacy.parts()], world)
        if selector.waits() and protocol.has_rounds:
            early["early cohort"] = f"selection '{selection}' reads its results ({', '.join(sorted(selector.reads))})"
        if isinstance(self.cost, SecondsCost):
            early["step seconds"] = "cost.kind 'seconds' gives those of a whole training; expected cost.kind: measured"
        for index, entry in enumerate(self.methods):
            if not entry.allowed:
                continue  # the scenario of a run directory, which was checked when the run began
            with self.built_method(index):
                method = build_method(entry.entry, training.local, training.codec, training.rounds)
                updates = protocol.gathered(training.cohort)
                attackers = 0 if attack is None else attack.count(updates)
                method.server.accept_count(updates, protocol.gathered_by, attackers)
                check(method.parts(), protocol.takes(method.weighting), early)
                check([Requirement(f"protocol '{protocol.kind}'", protocol.needs)], method.takes())
                if method.objective.server is None:
                    check(method.parts(), self.privacy.takes())
                    check(self.privacy.parts(), method.takes())
                    self._check_dp(entry.entry)
            if (own := self.personalisation) and own.lr is None:
                # Calibration is SGD, which another optimizer's rate does not suit.
                kind, ends = method.local.optimizer.kind, "" if method.local.lr_at(training.rounds) else "ends at 0"
                if found := ends if kind == "sgd" else f"is for {kind}, and calibration trains with sgd":
                    raise UserError(f"expected a rate: that of '{method.label}' {found}", field="personalisation.lr")
            if isinstance(self.cost, SecondsCost) and self.cost.range_of((method.label, method.name)) is None:
                hint = nearest(method.label, self.cost.methods)
                raise UserError(f"no seconds of method '{method.label}'; {hint}", field="cost.methods")

    def _check_dp(self, entry: Mapping[str, Any]) -> None:
        if (dp := self.privacy.dp) is None or not dp.of_clients:
            return
        if entry.get("weighting") == "samples":
            message = "unequal weights change how much one client adds; expected uniform with privacy.dp"
            raise UserError(message, field="weighting")
        if (kind := self.training.selection.name) != "uniform" and dp.kind == "central" and dp.sampling == "poisson":
            message = f"poisson draws each client itself, and selection is {kind}; expected uniform, or fixed"
            raise UserError(message, field="privacy.dp.sampling")

    @contextmanager
    def built_method(self, index: int) -> Iterator[None]:
        """As :func:`built_at`; an error is at ``training.local`` if its option stands there, not in the method's."""
        try:
            with built_at(f"methods.{index}"):
                yield
        except UserError as error:
            _, _, path = (error.field or "").partition(f"methods.{index}.local.")
            option, own = path.partition(".")[0], self.methods[index].entry.get("local") or {}
            if option in own or option not in self.training.local.model_fields_set:
                raise
            raise UserError(error.message, field=f"training.local.{path}", file=error.file) from None

    def _taken_by_network(self) -> dict[Need, str]:
        kind, transport, takes = self.network.topology.kind, self.network.transport, dict[Need, str]()
        kinds: tuple[Literal["cells", "star"], ...] = "cells", "star"
        for needed in kinds:
            if kind != needed:
                takes[needed] = f"network.topology is of kind '{kind}'; expected '{needed}'"
        decides = {
            "kind: tcp": transport.kind == "tcp",
            "multicast: true": transport.multicast,
            "queue: fifo": transport.queue == "fifo",
        }
        for option in (option for option, holds in decides.items() if holds):
            takes["server's links"] = f"network.transport.{option} decides about them"
        return takes

    def method(self, label: str) -> ScenarioMethod:
        """The method with this label; UserError if there is none."""
        for method in self.methods:
            if method.label == label:
                return method
        hint = nearest(label, [method.label for method in self.methods])
        raise UserError(f"the scenario '{self.name}' has no method labelled '{label}'; {hint}")

    def with_seeds(self, seeds: Sequence[int]) -> Scenario:
        """The same scenario with other seeds; UserError if one is negative or occurs twice, or there is none."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return validated(Scenario, {**fields, "seeds": list(seeds)})
