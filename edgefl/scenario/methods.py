"""The ``methods:`` list: the methods to compare, with their options and labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, PlainSerializer, PlainValidator

from edgefl.errors import UserError, locating, misspelt
from edgefl.methods.build import method_model, recipe_in, shared_options
from edgefl.methods.parts.server import ServerUpdate
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.record.names import LABEL_PATTERN, label_fault
from edgefl.scenario.components import SCHEDULER_SECTION, Named
from edgefl.scheduling.blocks.base import BlockSchedulerSpec
from edgefl.user_code import UserCode
from edgefl.validation import first_repeated, shown, validated


@dataclass(frozen=True)
class ScenarioMethod:
    """One method of a scenario: its unique label (``as``), and its entry for :func:`edgefl.methods.build.build_method`.

    ``scheduling`` is for methods with a partial downlink; ``python`` for one in a file, ``FILE.py:NAME``, ``optimizer``
    for a local optimizer in a file.
    """

    label: str
    entry: Mapping[str, Any]
    scheduling: Named[BlockSchedulerSpec] | None = None
    python: str | None = field(default=None, metadata={"names": "code"})
    optimizer: str | None = field(init=False, metadata={"names": "code"})

    def __post_init__(self) -> None:
        section: Any = self.entry
        for key in ("local", "optimizer", "python"):
            section = section.get(key) if isinstance(section, Mapping) else None
        object.__setattr__(self, "optimizer", section)

    @property
    def scheduler(self) -> BlockSchedulerSpec | None:
        return None if self.scheduling is None else self.scheduling.spec

    @property
    def name(self) -> str:
        return str(self.entry.get("method", self.label))

    @property
    def allowed(self) -> bool:
        """False for a method in a Python file that may not be executed."""
        return self.python is None or UserCode.of(self.python).allowed()

    @property
    def recipe(self) -> Recipe:
        return recipe_in(self.entry)


def read_methods(value: Any) -> tuple[ScenarioMethod, ...]:
    """The methods of a list of names and mappings."""
    if not isinstance(value, list | tuple):
        raise UserError(f"expected a list of methods, found {shown(value)}", field="methods")
    if not value:
        raise UserError("expected at least one method, found an empty list", field="methods")
    methods = tuple(
        item if isinstance(item, ScenarioMethod) else _read(item, f"methods.{index}")
        for index, item in enumerate(value)
    )
    # Some file systems do not distinguish FedAvg and fedavg.
    labels = [method.label.casefold() for method in methods]
    if (repeated := first_repeated(labels)) is not None:
        label, index = repeated
        used = f"the label '{methods[index].label}' is used by methods.{labels.index(label)}"
        raise UserError(f"{used}; set another one with `as`", field=f"methods.{index}")
    return methods


def _read(item: Any, field: str) -> ScenarioMethod:
    data = {"method": item} if isinstance(item, str) else item
    if not isinstance(data, Mapping):
        raise UserError(f"expected a method's name or a mapping with the key method, found {shown(item)}", field=field)
    if "method" not in data and "python" not in data:
        hint = misspelt("method", data)
        raise UserError(f"this key is missing: the name of a method, such as fedavg{hint}", field=f"{field}.method")
    key = "python" if "python" in data else "method"
    name = data[key]
    if not isinstance(name, str) or ("python" in data and "method" in data):
        what = "the name of a method" if key == "method" else "FILE.py:NAME, and no key method"
        raise UserError(f"expected {what}, found {shown(name)}", field=f"{field}.{key}")
    with locating(field=field if isinstance(item, str) else f"{field}.{key}"):
        code = UserCode.of(name) if key == "python" else None
        label = _label(data.get("as", name if code is None else code.file.stem), f"{field}.as")
        if code is not None and not code.allowed():
            return _unread(data, label, field)
        recipe = recipe_in(data)
    options = {each: option for each, option in data.items() if each not in (key, "as", "scheduler")}
    checked = validated(method_model(recipe), options, field=field, known=(key, "as"))
    entry = {key: name, "as": label, **_said(checked, recipe)}
    if recipe.scheduler is None:
        if data.get("scheduler") is not None:
            message = f"the method '{name}' always sends the whole model and has no block scheduler; remove this key"
            raise UserError(message, field=f"{field}.scheduler")
        return ScenarioMethod(label, entry, python=data.get("python"))
    chosen = data.get("scheduler") or recipe.scheduler
    scheduler = SCHEDULER_SECTION.read(chosen, f"{field}.scheduler")
    return ScenarioMethod(label, entry, scheduler, data.get("python"))


def _unread(data: Mapping[str, Any], label: str, field: str) -> ScenarioMethod:
    """A method of a run directory's scenario whose file may not be executed yet; its options are complete."""
    entry = {key: option for key, option in data.items() if key != "scheduler"}
    scheduler = SCHEDULER_SECTION.read(data["scheduler"], f"{field}.scheduler") if "scheduler" in data else None
    return ScenarioMethod(label, entry, scheduler, data["python"])


def _said(entry: BaseModel, recipe: Recipe) -> dict[str, Any]:
    """All options of an entry with their values; sections with inherited defaults only as far as they were given."""
    server: ServerUpdate | None = getattr(entry, "server", None)
    building = {"label", "local", "codec", "server", "weighting"}
    if server is not None:  # the options of the replaced server update have no effect
        building |= set(type(recipe.server).model_fields) - entry.model_fields_set
    said = entry.model_dump(mode="json", exclude=building)
    for section in sorted({"local", "codec"} & entry.model_fields_set):
        said[section] = entry.model_dump(mode="json", include={section}, exclude_unset=True)[section]
    if server is not None:
        common = shared_options(recipe) if type(server) is type(recipe.server) else set()
        options = server.model_dump(mode="json", exclude=common)
        said["server"] = {"kind": server.registered_name, **options}
    weighting = getattr(entry, "weighting", None)
    if weighting is not None:
        said["weighting"] = weighting
    return said


def _label(label: Any, field: str) -> str:
    fault = label_fault(label) if isinstance(label, str) else "expected a label"
    if fault is not None:
        raise UserError(f"{fault}; found {shown(label)}", field=field)
    return str(label)


def _written(method: ScenarioMethod) -> dict[str, Any]:
    written = dict(method.entry)
    if method.scheduling is not None:
        written["scheduler"] = SCHEDULER_SECTION.write(method.scheduling)
    return written


def methods_schema() -> dict[str, Any]:
    """The JSON schema of the list, with the options of every registered method."""
    described = METHODS.of_each(_schema)
    return {
        "type": "array",
        "minItems": 1,
        "description": "the methods to compare: names, or mappings with options",
        "items": {"anyOf": [{"enum": list(described)}, *described.values(), _OF_A_FILE]},
    }


_OF_A_FILE = {
    "type": "object",
    "description": "a method of your own; every other key is that of a method or an option of its parts",
    "properties": {"python": {"type": "string", "description": "the recipe, FILE.py:NAME"}},
    "required": ["python"],
    "not": {"required": ["method"]},
}


def _schema(name: str, recipe: Recipe) -> dict[str, Any]:
    schema = method_model(recipe).model_json_schema(mode="validation")
    properties = {**schema.get("properties", {}), "method": {"const": name}}
    properties["as"] = {
        "type": "string",
        "pattern": f"^{LABEL_PATTERN}$",
        "description": "the method's label in this scenario",
    }
    if recipe.scheduler is not None:
        properties["scheduler"] = SCHEDULER_SECTION.json_schema()
    schema.update(properties=properties, required=sorted({"method", *schema.get("required", [])}))
    schema["description"] = recipe.summary
    return schema


Methods = Annotated[
    tuple[ScenarioMethod, ...],
    PlainValidator(read_methods, json_schema_input_type=Any),
    PlainSerializer(lambda methods: [_written(each) for each in methods], return_type=list[dict[str, Any]]),
]
