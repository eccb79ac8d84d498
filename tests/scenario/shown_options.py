"""The options that shipped scenarios, device profiles and the pages' examples set.

``python -m tests.scenario.shown_options`` prints the others. An option that all parts of a family have is one option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgefl import shipped
from edgefl.scenario.loading import json_schema
from edgefl.scenario.overrides import overridden, parse_overrides
from edgefl.yaml_file import parse_yaml, read_yaml

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

Schema = dict[str, Any]


def examples(page: Path) -> Iterator[Any]:
    """The YAML examples of a page; where a key occurs again at the margin, another one begins."""
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        part, seen = "", set[str]()
        for line in block.splitlines(keepends=True):
            key = line.partition(":")[0] if line[0].isalpha() else ""
            if key in seen:
                yield parse_yaml(part)
                part, seen = "", set()
            part, seen = part + line, seen | {key} - {""}
        yield parse_yaml(part)


def settings(page: Path) -> Iterator[Any]:
    """What ``--set`` changes in the commands of a page."""
    for quoted, plain in re.findall(r"--set (?:'([^'=]+=[^']+)'|([a-z][\w.]*=[\w.:{}-]+))", page.read_text("utf-8")):
        path, _, value = (quoted or plain).partition("=")
        yield overridden({}, parse_overrides([f"{re.sub(r'[.][0-9]+', '.0', path)}={value}"]))


class Options:
    """The options of a JSON schema, and those that data set."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.definitions = schema, schema["$defs"]
        self.profile = self._members(schema["properties"]["fleet"]["items"])[0]["properties"]["profile"]
        self.names: dict[tuple[str, str], str] = {}  # by mapping and key
        self.alike: dict[str, set[tuple[str, str]]] = {}  # by what an option is
        self.used: set[tuple[str, str]] = set()
        self._identities: dict[int, str] = {}
        self._walk(schema, "")

    def _identity(self, member: Schema) -> str:
        """Mappings that are alike are one, wherever the schema has them."""
        if id(member) not in self._identities:
            self._identities[id(member)] = json.dumps(member, sort_keys=True)
        return self._identities[id(member)]

    def unused(self) -> list[str]:
        """The options that nothing sets, by their paths."""
        return sorted(min(map(self.names.__getitem__, each)) for each in self.alike.values() if not each & self.used)

    def _members(self, node: Schema) -> list[Schema]:
        while "$ref" in node:
            node = self.definitions[node["$ref"].rpartition("/")[2]]
        choices = node.get("anyOf", node.get("oneOf"))
        if choices and not node.get("properties"):
            return [member for choice in choices for member in self._members(choice)]
        return [node]

    def _walk(self, node: Schema, path: str) -> None:
        for member in self._members(node):
            identity, tag = self._identity(member), _tag(member)
            own = f"{path}<{tag[1]}>" if tag else path
            for key, inner in member.get("properties", {}).items():
                if (identity, key) in self.names:
                    continue
                is_tag = tag is not None and tag[0] == key
                self.names[identity, key] = f"{own}.{key}".lstrip(".")
                what = own if is_tag else json.dumps({**inner, "default": None}, sort_keys=True)
                self.alike.setdefault(f"{path}.{key} {what}", set()).add((identity, key))
                self._walk(inner, f"{own}.{key}".lstrip("."))
            for inner, suffix in ((member.get("items"), "[]"), (member.get("additionalProperties"), ".*")):
                if isinstance(inner, dict):
                    self._walk(inner, path + suffix)

    def use(self, value: Any, node: Schema) -> None:
        """Note the options that a value of this schema sets."""
        members = self._members(node)
        if isinstance(value, dict) and members and all("items" in member for member in members):
            value = [value]
        if isinstance(value, list):
            for member in members:
                for each in value if isinstance(member.get("items"), dict) else ():
                    self.use(each, member["items"])
            return
        for member in members:
            if (tag := _tag(member)) and value == tag[1]:
                self.used.add((self._identity(member), tag[0]))
        if not isinstance(value, dict):
            return
        described = [member for member in members if member.get("properties")]
        if described:
            member = max(described, key=lambda member: _likeness(value, member))
            identity, tag = self._identity(member), _tag(member)
            self.used |= {(identity, key) for key in {*value, *(tag[:1] if tag else ())}}
            for key, inner in value.items():
                self.use(inner, self.profile if key == "overrides" else member["properties"].get(key, {}))
        for member in () if described else members:
            if isinstance(member.get("additionalProperties"), dict):
                for inner in value.values():
                    self.use(inner, member["additionalProperties"])


def _tag(member: Schema) -> tuple[str, str] | None:
    properties = member.get("properties", {})
    return next(((tag, properties[tag]["const"]) for tag in ("kind", "name", "method")
                 if "const" in properties.get(tag, {})), None)  # fmt: skip


def _likeness(value: dict[str, Any], member: Schema) -> int:
    """How well a mapping fits this kind of mapping."""
    tag, score = _tag(member), sum(1 if key in member["properties"] else -2 for key in value)
    if tag and tag[0] in value:
        return score + (100 if value[tag[0]] == tag[1] else -100)
    return score + (60 if tag and tag[1] in value else 0)


def unshown() -> list[str]:
    """The options that no shipped scenario, profile, example or command of the pages sets."""
    options = Options(json_schema())
    for file in shipped.files("scenarios").values():
        options.use(read_yaml(file), options.schema)
    for file in shipped.files("device_profiles").values():
        options.use(read_yaml(file), options.profile)
    for page in PAGES:
        for data in [*examples(page), *settings(page)]:
            options.use(data, options.profile if "kind" in data or "compute" in data else options.schema)
    return options.unused()


if __name__ == "__main__":
    print("\n".join(unshown()))
