"""A scenario with the key ``flower``: an app of Flower decides everything about learning, the scenario all the rest."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from edgefl.errors import UserError
from edgefl.fleet import FleetGroup, group_counts
from edgefl.fleet import resolve as with_profile
from edgefl.network.specs import NetworkSpec
from edgefl.options import Options
from edgefl.record.metric import ACCURACY
from edgefl.record.names import label_fault
from edgefl.scenario.loading import FLOWER, changed_data, check, json_schema, read_scenario
from edgefl.scenario.overrides import Overrides, blaming_changes, parse_overrides
from edgefl.scenario.scenario import NAME, Scenario, check_world
from edgefl.scenario.sections import Target
from edgefl.simulation.accounts import BudgetSpec
from edgefl.simulation.presence import Failure
from edgefl.units import Seconds
from edgefl.validation import first_repeated, validated

Value = bool | int | float | str
"""A value of an app's run configuration."""

RunConfig = Annotated[dict[str, Value], BeforeValidator(lambda it: flat(it) if isinstance(it, Mapping) else it)]
"""A run configuration, in which keys with dots stand for tables."""

NonNegative = Annotated[Seconds, Field(ge=0)]


class DeclaredSeconds(Options):
    """Seconds of a client's work on every device, by type of message; None: counted from its PyTorch operators."""

    train: NonNegative | None = Field(default=None, description="of training")
    evaluate: NonNegative | None = Field(default=None, description="of evaluation")
    query: NonNegative | None = Field(default=None, description="of a query")

    def of(self, message_type: str) -> float | None:
        """The seconds for a type of message, such as ``train`` or ``train.action``.

        >>> DeclaredSeconds(train="2 s").of("train.warm_up"), DeclaredSeconds(train="2 s").of("evaluate")
        (2.0, None)
        """
        category = message_type.partition(".")[0]
        seconds: float | None = getattr(self, category if category in type(self).model_fields else "query")
        return seconds


class AppSpec(Options):
    """An app, and how its clients' work is timed."""

    app: str = Field(min_length=1, description="the app's folder, which contains its pyproject.toml")
    run_config: RunConfig = Field(default_factory=dict, description="values in place of the app's; dots for tables")
    seconds: DeclaredSeconds = Field(
        default_factory=DeclaredSeconds,
        description="declared for each type of message, or one for all; null: counted from operators",
    )
    metric: str | None = Field(None, description="the app's metric for accuracy; null: the first with acc in its name")

    @field_validator("seconds", mode="before")
    @classmethod
    def _alike(cls, value: Any) -> Any:
        if value is None or isinstance(value, Mapping | DeclaredSeconds):
            return {} if value is None else value
        return dict.fromkeys(DeclaredSeconds.model_fields, value)


class AppMethod(Options):
    """A method of the scenario: the app with other options."""

    label: str = Field(alias="as", description="the method's label in this scenario")
    app: str | None = Field(default=None, min_length=1, description="another app")
    run_config: RunConfig = Field(default_factory=dict, description="further values of the run configuration")

    @field_validator("label")
    @classmethod
    def _a_folder(cls, label: str) -> str:
        if (fault := label_fault(label)) is not None:
            raise ValueError(fault)
        return label


class AppData(Options):
    """The nodes of the app, which has data of its own."""

    clients: int = Field(ge=1, le=100_000, description="nodes; each gets a partition-id from 0")


class AppScenario(Options):
    """A scenario whose methods are runs of Flower apps."""

    name: str = Field(pattern=NAME, description=Scenario.model_fields["name"].description)
    seeds: tuple[Annotated[int, Field(ge=0, le=2**53)], ...] = Field(default=(0,), min_length=1, max_length=10_000)
    flower: AppSpec
    data: AppData
    fleet: tuple[FleetGroup, ...] = Field(min_length=1)
    network: NetworkSpec
    failures: tuple[Failure, ...] = ()
    methods: tuple[AppMethod, ...] = Field(default=(AppMethod(**{"as": "flower"}),), min_length=1)
    targets: tuple[Target, ...] = ()
    target_metric: Literal["accuracy", "accuracy_ema", "metric", "metric_ema"] = "accuracy"
    budgets: BudgetSpec = Field(default_factory=BudgetSpec)
    stop: Literal["budget", "rounds", "target"] = "budget"

    @model_validator(mode="before")
    @classmethod
    def _only_the_world(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key in Scenario.model_fields and key not in cls.model_fields:
                    raise UserError("a Flower app decides this itself; remove the key", field=str(key))
            if isinstance(data.get("data"), Mapping):
                for key in data["data"]:
                    if key not in AppData.model_fields:
                        raise UserError("a Flower app has data of its own; expected only clients", field=f"data.{key}")
            data = {key: value for key, value in data.items() if value is not None or key not in ("targets", "budgets")}
        return data

    @field_validator("fleet")
    @classmethod
    def _embed_profiles(cls, groups: tuple[FleetGroup, ...]) -> tuple[FleetGroup, ...]:
        return tuple(with_profile(group, field=f"fleet.{index}") for index, group in enumerate(groups))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        group_counts(self.fleet, self.data.clients)
        check_world(self, ACCURACY)
        if (repeated := first_repeated([method.label.casefold() for method in self.methods])) is not None:
            raise UserError(f"expected different methods, found {repeated[0]} twice", field=f"methods.{repeated[1]}")
        return self

    def app_of(self, method: AppMethod) -> AppSpec:
        config = {**self.flower.run_config, **method.run_config}
        return self.flower.model_copy(update={"app": method.app or self.flower.app, "run_config": config})

    def apps(self) -> dict[str, str]:
        """The folder of each app, by its field in the scenario."""
        own = {f"methods.{index}.app": each.app for index, each in enumerate(self.methods) if each.app is not None}
        return {"flower.app": self.flower.app, **own}

    def with_seeds(self, seeds: list[int]) -> AppScenario:
        """The same scenario with other seeds; UserError if one is negative or occurs twice."""
        return validated(AppScenario, {**self.model_dump(mode="json", by_alias=True), "seeds": seeds})


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as keys with dots, as Flower reads them.

    >>> flat({"model": {"width": 8}, "lr": 0.1})
    {'model.width': 8, 'lr': 0.1}
    """
    found: dict[str, Any] = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def load_any_scenario(path_or_name: str | PathLike[str], overrides: Overrides = ()) -> Scenario | AppScenario:
    """The scenario in a file, of own methods or of a Flower app; the file is read once, so it may be a pipe."""
    name, folder, data = read_scenario(path_or_name)
    changes = parse_overrides(overrides)
    if not isinstance(data, Mapping) or not (FLOWER in data or any(each.path[0] == FLOWER for each in changes)):
        return check(data, changes, file=name, folder=folder)
    with blaming_changes(changes, name):
        return validated(AppScenario, changed_data(data, changes, folder))


def app_scenario_of(run: Path) -> AppScenario | None:
    """The resolved scenario of a run directory if it ran a Flower app; None if it has none, or another one."""
    from edgefl.record import RunPaths

    file = RunPaths(run).scenario
    if not file.is_file() or FLOWER not in (read_scenario(file)[2] or ()):
        return None
    found = load_any_scenario(file)
    return found if isinstance(found, AppScenario) else None


def json_schema_of_any() -> dict[str, Any]:
    """The JSON schema of scenario files: with the key ``flower`` those of apps, without it those of own methods.

    >>> sorted(json_schema_of_any()["then"]["required"])
    ['data', 'fleet', 'flower', 'name', 'network']
    """
    own, apps = json_schema(), AppScenario.model_json_schema(mode="validation")
    definitions = {**apps.pop("$defs"), **own.pop("$defs")}
    described = definitions["AppSpec"]["properties"]
    described["seconds"] = {"anyOf": [described["seconds"], {"type": ["string", "number"]}]}  # one for all types
    return {
        "$schema": own.pop("$schema"),
        "type": "object",
        "if": {"required": [FLOWER]},
        "then": apps,
        "else": own,
        "$defs": definitions,
    }
