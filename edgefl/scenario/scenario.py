"""What a scenario file may say. Every component brings its own specification; this composes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from edgefl.errors import UserError, nearest
from edgefl.fleet import FleetGroup, group_counts
from edgefl.fleet import resolve as with_profile
from edgefl.learning.methods.build import build_method
from edgefl.learning.personalisation.calibration import CalibrationSpec
from edgefl.network.specs import NetworkSpec
from edgefl.options import Options
from edgefl.scenario.components import Data, Model, built_at
from edgefl.scenario.methods import Methods, ScenarioMethod
from edgefl.scenario.published import Published
from edgefl.scenario.sweep import SweepSpec
from edgefl.scenario.training import EvaluationSpec, TrainingSpec
from edgefl.scheduling.selection.fixed import Fixed
from edgefl.simulation.cost_specs import CostSpec, MeasuredCost, SecondsCost
from edgefl.simulation.protocol_specs import AsynchronousSpec, HierarchicalSpec, ProtocolSpec, SynchronousSpec
from edgefl.simulation.specs import BudgetSpec
from edgefl.validation import validated

NAME = r"^[A-Za-z0-9][A-Za-z0-9+_.-]{0,99}$"
"""What may become the name of a folder: letters, digits, + - _ . and no dot in front."""


class Scenario(Options):
    """One comparison: everything it depends on beside edgefl itself, the data's files and the random seeds' meaning."""

    name: str = Field(pattern=NAME, description="what the scenario is called; the run directory's default name")
    seeds: tuple[Annotated[int, Field(ge=0, le=2**53)], ...] = Field(
        default=(0,), min_length=1, description="each method runs once with each of them"
    )
    data: Data = Field(description="what is learned, and how it is spread over the clients")
    model: Model = Field(description="what is trained: a model's name and its options")
    training: TrainingSpec = Field(description="rounds, cohort, and a client's local training")
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec, description="when and on what")
    protocol: ProtocolSpec = Field(default_factory=SynchronousSpec, description="how rounds run")
    personalisation: CalibrationSpec | None = Field(
        default=None, description="what each client makes of the final model; needs data.test: partitioned"
    )
    fleet: tuple[FleetGroup, ...] = Field(min_length=1, description="groups of clients with the same device and link")
    network: NetworkSpec = Field(description="the graph, and the clients' links by name")
    cost: CostSpec = Field(default_factory=MeasuredCost, description="where FLOPs and seconds of training come from")
    methods: Methods = Field(description="what is compared: names, or mappings with options")
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        default=(), description="accuracies in (0, 1]; time, bytes, joules and rounds to each are reported"
    )
    target_metric: Literal["accuracy", "accuracy_ema"] = Field(
        default="accuracy", description="what has to reach them: accuracy, or its moving average (0.9)"
    )
    keep_models: Literal["none", "server", "clients"] = Field(
        default="server",
        description="models that a finished run leaves behind: none, the last server model, or also the local models "
        "that it was made of",
    )
    budgets: BudgetSpec = Field(default_factory=BudgetSpec, description="limits on what a run may spend")
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

    @field_validator("fleet")
    @classmethod
    def _embed_profiles(cls, groups: tuple[FleetGroup, ...]) -> tuple[FleetGroup, ...]:
        embedded = []
        for index, group in enumerate(groups):
            field = f"fleet.{index}"
            try:
                embedded.append(with_profile(group, field=field))
            except UserError as error:
                if error.file is None:
                    raise
                # The fault is in another file; the scenario's own name is still to be put in front.
                raise UserError(str(error), field=f"{field}.profile") from None
        return tuple(embedded)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._check_lists()
        self._check_cohort()
        group_counts(self.fleet, self.data.clients)
        self._check_parts()
        for index, group in enumerate(self.fleet):
            if group.link not in self.network.links:
                hint = nearest(group.link, self.network.links)
                raise UserError(f"no link '{group.link}' in network.links; {hint}", field=f"fleet.{index}.link")
        return self

    def _check_lists(self) -> None:
        for field, values in (("seeds", self.seeds), ("targets", self.targets)):
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise UserError(f"expected different {field}, found {value} twice", field=f"{field}.{index}")
        if self.personalisation is not None and self.data.test != "partitioned":
            raise UserError(
                f"each client is tested on its own part, so data.test must be partitioned, found '{self.data.test}'",
                field="personalisation",
            )
        if self.stop == "target" and not self.targets:
            raise UserError("a run that stops at its targets needs at least one, found none", field="targets")

    def _check_cohort(self) -> None:
        cohort, clients = self.training.cohort, self.data.clients
        if cohort > clients:
            raise UserError(f"expected at most data.clients ({clients}), found {cohort}", field="training.cohort")
        self._check_protocol(cohort, clients)
        spec = self.training.selection.spec
        if isinstance(spec, Fixed) and spec.clients is not None:
            field = "training.selection.clients"
            if max(spec.clients) >= clients:
                raise UserError(f"expected clients from 0 to {clients - 1}, found {max(spec.clients)}", field=field)
            if len(spec.clients) < cohort:
                raise UserError(
                    f"expected at least training.cohort ({cohort}) clients, found {len(spec.clients)}", field=field
                )
        local = self.training.local
        if local.epochs is not None and local.steps is not None:
            raise UserError("expected either epochs or steps, found both", field="training.local.steps")

    def _check_protocol(self, cohort: int, clients: int) -> None:
        protocol = self.protocol
        if isinstance(protocol, AsynchronousSpec):
            if protocol.under_way(cohort) > clients:
                raise UserError(
                    f"expected at most data.clients ({clients}), found {protocol.under_way(cohort)}",
                    field="protocol.concurrency",
                )
            return
        if isinstance(protocol, HierarchicalSpec) and self.network.topology.kind != "cells":
            raise UserError(
                f"hierarchical rounds need cells that average: expected network.topology of kind 'cells', "
                f"found '{self.network.topology.kind}'",
                field="protocol.kind",
            )
        if protocol.picked(cohort) > clients:
            found = f"{protocol.over_select:g} x {cohort} = {protocol.picked(cohort)}"
            raise UserError(
                f"expected a pick of at most data.clients ({clients}), found {found}", field="protocol.over_select"
            )

    def _check_parts(self) -> None:
        with built_at("training.selection"):
            selector = self.training.selection.spec.start(self.seeds[0])
        for index, method in enumerate(self.methods):
            with built_at(f"methods.{index}"):
                recipe = build_method(method.entry, self.training.local, self.training.codec)
            if isinstance(self.cost, SecondsCost) and self.cost.range_of((method.label, method.name)) is None:
                hint = nearest(method.label, self.cost.methods)
                raise UserError(f"no seconds of method '{method.label}'; {hint}", field="cost.methods")
            if recipe.overlap and selector.learns() and not isinstance(self.protocol, AsynchronousSpec):
                raise UserError(
                    "overlap picks a cohort while the round before still runs, but selection "
                    f"'{self.training.selection.name}' first reads its outcome ({', '.join(sorted(selector.reads))})",
                    field=f"methods.{index}.overlap",
                )

    def method(self, label: str) -> ScenarioMethod:
        """The method with this label.

        Raises:
            UserError: the scenario has no such method.
        """
        for method in self.methods:
            if method.label == label:
                return method
        hint = nearest(label, [method.label for method in self.methods])
        raise UserError(f"the scenario '{self.name}' has no method labelled '{label}'; {hint}")

    def with_seeds(self, seeds: Sequence[int]) -> Scenario:
        """The same scenario with other seeds.

        Raises:
            UserError: a seed is negative or stands twice, or there is none.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return validated(Scenario, {**fields, "seeds": list(seeds)})
