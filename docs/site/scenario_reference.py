"""The reference of scenario and profile files, from the JSON schema that files are checked by."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from markdown_pieces import code, keys

Schema = dict[str, Any]

PAGES = {
    "reference/scenario.md": (
        "Scenario file",
        "Every key of a scenario, its possible values and its default. [Scenarios](../scenarios.md) "
        "explains them with examples; `edgefl scenario schema` prints the same for an editor.",
    ),
    "reference/methods.md": (
        "Methods' options",
        "The options of an entry of a scenario's `methods`, for each method. [Methods](../methods.md) gives formulas.",
    ),
    "reference/models.md": ("Models' options", "The options of a scenario's `model`, for each model."),
    "reference/device-profile.md": (
        "Device profile file",
        "Every key of a device profile. [Device profiles](../device-profiles.md) shows how to write one, and where the "
        "figures of the shipped ones come from.",
    ),
}
"""Title and introduction of each page."""

_TAGS = ("kind", "name", "method")
_BASE = {"20 ms": "s", "500 MB": "bytes", "40 Mbit/s": "bit/s", "25.6 GB/s": "bytes/s", "5 TFLOP": "FLOP",
         "35 GFLOP/s": "FLOP/s", "5 kJ": "J", "12.7 W": "W", "1.5 GHz": "Hz"}  # fmt: skip
"""The base unit of the quantity that the schema gives this example of."""


def pages() -> dict[str, str]:
    """The text of each page by its path."""
    from edgefl.scenario import json_schema

    reference = _Reference(json_schema())
    return {path: reference.page(path) for path in PAGES}


def page_of(path: str) -> str:
    """The page on which a part of a scenario is described, by its dotted path."""
    if path.startswith("methods["):
        return "reference/methods.md"
    if path == "model":
        return "reference/models.md"
    return "reference/device-profile.md" if path.startswith("fleet[].profile") else "reference/scenario.md"


class _Reference:
    """Walks the schema from the root, and gives each kind of mapping a section where it is first met.

    Mappings of which a tag (``kind``, ``name``, ``method``) chooses one are a family. It has one section: first the
    keys that most of them have, then a part for each with what it alone has.
    """

    def __init__(self, schema: Schema) -> None:
        self.definitions: dict[str, Schema] = schema["$defs"]
        self.sections: dict[str, list[str]] = {page: [] for page in PAGES}
        self.homes: dict[str, str] = {}
        self.waiting: list[tuple[str, list[Schema]]] = []
        self.home("", [schema])
        while self.waiting:
            (path, members), *others = self.waiting
            self.waiting = []
            whole = self.mapping if len(members) == 1 else self.family
            self.sections[page_of(path)].append(whole(path, members))
            self.waiting += others  # what a section names follows it

    def page(self, path: str) -> str:
        title, introduction = PAGES[path]
        units = (
            "Quantities are numbers in the base unit that is given as their type, or texts with "
            "[a unit](../scenarios.md#rules-for-the-whole-file). A type that is a link is a mapping."
        )
        return f"# {title}\n\n{introduction} {units}\n\n" + "\n".join(self.sections[path])

    def home(self, path: str, members: list[Schema]) -> str:
        """The path under which mappings are described; their section is written when they are met first."""
        key = json.dumps(members, sort_keys=True)
        if key not in self.homes:
            taken = [home for home in self.homes.values() if home == path or home.startswith(f"{path} (")]
            path = f"{path} ({len(taken) + 1})" if taken else path  # another mapping that the same field may have
            self.homes[key] = path
            self.waiting.append((path, members))
        return self.homes[key]

    def mapping(self, path: str, members: list[Schema]) -> str:
        (mapping,) = members
        title = code(path) if path else "The whole file"
        return f"({anchor(path)})=\n## {title}\n\n{_about(mapping)}\n\n{keys(HEAD, self.rows(path, mapping))}"

    def family(self, path: str, members: list[Schema]) -> str:
        tag = _tag(members)
        assert tag is not None
        parts = {str(each["properties"][tag]["const"]): each for each in members}
        common = {key: field for key, field in _usual(members).items() if key != tag}
        chosen = ", ".join(f"[{code(name)}](#{anchor(f'{path}-{name}')})" for name in parts)
        text = f"({anchor(path)})=\n## {code(path)}\n\n`{tag}` chooses one of {chosen}.\n\n"
        if common:
            text += "Unless stated otherwise, all of them have:\n\n"
            text += keys(HEAD, self.rows(path, {"properties": common, "required": members[0].get("required", [])}))
            text += "\n"
        for name, each in parts.items():
            properties = each["properties"]
            own = {key: field for key, field in properties.items() if key != tag and field != common.get(key)}
            missing = ", ".join(code(key) for key in common if key not in properties)
            text += f"({anchor(f'{path}-{name}')})=\n### `{tag}: {name}`\n\n{_about(each)}"
            text += f" Has no {missing}.\n\n" if missing else "\n\n"
            text += keys(HEAD, self.rows(path, {**each, "properties": own})) + "\n" if own else ""
        return text

    def rows(self, path: str, mapping: Schema) -> Iterator[list[str]]:
        required = mapping.get("required", [])
        for name, field in mapping["properties"].items():
            default = "required" if name in required else _default(field)
            kind = self.type(field, f"{path}.{name}".lstrip("."))
            yield [code(name), kind, default, field.get("description", "")]

    def type(self, field: Schema, path: str) -> str:
        """The values that a field may have, in words."""
        return " or ".join(dict.fromkeys(self.kinds(field, path))) or "anything"

    def kinds(self, field: Schema, path: str) -> Iterator[str]:
        field = self.resolved(field)
        choices = [self.resolved(each) for each in field.get("anyOf", field.get("oneOf", []))]
        unit = _unit(choices)
        if unit:
            yield f"{unit}{_bounds(field)}"
        elif choices:
            yield from self.choices(choices, path)
        elif "const" in field:
            yield code(json.dumps(field["const"]).strip('"'))
        elif "enum" in field:
            yield ", ".join(code("null" if each is None else each) for each in field["enum"])
        elif field.get("properties"):
            yield self.link([field], path)
        elif field.get("type") == "array":
            items = field.get("items", field.get("prefixItems", [{}])[0])
            yield f"list: {self.type(items, f'{path}[]')}"
        elif field.get("type") == "object":
            values = field.get("additionalProperties", next(iter(field.get("patternProperties", {}).values()), {}))
            yield f"mapping: {self.type(values, f'{path}.NAME')}" if isinstance(values, dict) else "mapping"
        elif "type" in field:
            words = {"integer": "whole number", "string": "text", "boolean": "`true`, `false`", "null": "`null`"}
            yield words.get(field["type"], field["type"]) + _bounds(field)

    def choices(self, choices: list[Schema], path: str) -> Iterator[str]:
        """Each kind of value that a field may have; all mappings that a tag chooses are one kind."""
        mappings = [each for each in choices if each.get("properties")]
        tagged = [each for each in mappings if _tag([each])]
        tag = _tag(tagged)
        names = {str(each["properties"][tag]["const"]) for each in tagged} if tag else {"?"}
        for each in choices:
            if set(each.get("enum", [])) == names:
                yield "a name alone"
            elif each not in mappings:
                yield from self.kinds(each, path)
        if tagged:
            yield self.link(tagged, path)
        for each in mappings:
            if each not in tagged:
                yield self.link([each], f"{path}.{each['required'][0]}" if tagged else path)

    def resolved(self, field: Schema) -> Schema:
        while "$ref" in field:
            field = {**self.definitions[field["$ref"].rpartition("/")[2]]}
        return field

    def link(self, members: list[Schema], path: str) -> str:
        if set(members[0]["properties"]) == {"low", "nominal", "high"}:
            return "`{low, nominal, high}`"
        home = self.home(path, members)
        return f"[{code(home)}](#{anchor(home)})"


HEAD = ("key", "type", "default", "meaning")


def anchor(path: str) -> str:
    """The part of an address after ``#`` that leads to the section of a path, the only one of that name on the site.

    >>> anchor("network.links.NAME.down-uniform"), anchor("methods[]-fedadc+")
    ('key-network-links-name-down-uniform', 'key-methods-fedadc-plus')
    """
    return "key-" + re.sub(r"[^a-z0-9_]+", "-", path.lower().replace("+", "-plus")).strip("-")


def _tag(mappings: list[Schema]) -> str | None:
    """The key whose fixed value distinguishes the mappings."""
    if not mappings:
        return None
    return next((tag for tag in _TAGS if all("const" in each["properties"].get(tag, {}) for each in mappings)), None)


def _usual(mappings: list[Schema]) -> Schema:
    """The fields that more than half of the mappings share."""
    said = Counter((key, json.dumps(field)) for each in mappings for key, field in each["properties"].items())
    return {key: json.loads(field) for (key, field), count in said.items() if count > len(mappings) / 2}


def _unit(choices: list[Schema]) -> str | None:
    """The base unit, if these are the two forms of a quantity."""
    examples = [each["examples"][0] for each in choices if each.get("examples")]
    return _BASE.get(examples[0]) if len(examples) == 1 and len(choices) == 2 else None


def _bounds(field: Schema) -> str:
    low = {"minimum": "≥", "ge": "≥", "exclusiveMinimum": ">", "gt": ">"}
    high = {"maximum": "≤", "le": "≤", "exclusiveMaximum": "<", "lt": "<"}
    lower = max(((field[key], sign) for key, sign in low.items() if key in field), default=None)
    upper = next(((field[key], sign) for key, sign in high.items() if key in field), None)
    said = [f"{sign} {limit:g}" for limit, sign in (each for each in (lower, upper) if each) if abs(limit) < 1e10]
    return f" {', '.join(said)}" if said else ""


def _default(field: Schema) -> str:
    if "default" not in field:
        return ""
    if field["default"] == {}:
        return "all defaults"
    return code(json.dumps(field["default"], ensure_ascii=False).replace('"', ""))


def _about(mapping: Schema) -> str:
    """A docstring's first paragraphs without its examples and attributes, which are for Python."""
    text = inspect.cleandoc(mapping.get("description", ""))
    text = re.split(r"^(?:>>>|Args:|Attributes:|Raises:)", text, maxsplit=1, flags=re.MULTILINE)[0]
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`").strip()
    return re.sub(r"`docs/([a-z-]+)\.md`", r"[\1](../\1.md)", text)
