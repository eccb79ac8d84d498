"""``--set PATH=VALUE``: change a scenario's data before it is checked.

A path is dotted, with list items by index (``fleet.0.share``). The value is YAML and replaces the old value. Missing
mappings on the path are created; whether a key is valid is checked by the scenario's schema.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgefl import shipped
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.fleet.library import is_path
from edgefl.input_file import EXISTS, Named, naming_fields
from edgefl.models.registry import MODELS
from edgefl.registry import Registry, part_of
from edgefl.training.engine_spec import ENGINES
from edgefl.user_code import UserCode
from edgefl.validation import shown
from edgefl.yaml_file import parse_yaml

Place = Named | Literal["root", "profile"]

_NAMING: dict[Place, str] = {
    "root": "data.root flower.app methods.*.app",
    "file": "network.topology.file data.partition.file fleet.*.availability.file prices.*.file prices.server.*.file "
    "fleet.*.prices.*.file prices.carbon prices.energy prices.server.carbon prices.server.energy "
    "fleet.*.prices.carbon fleet.*.prices.energy",
    "traces": "network.links.*.*.file",
    "profile": "fleet.*.profile methods.*.profile training.server",
    "code": "network.links.*.*.python figures.*.python methods.*.python methods.*.scheduler.python protocol.python "
    "methods.*.local.optimizer.python training.local.optimizer.python training.bandwidth.python "
    "training.selection.python",
}
FILES = {path: what for what, paths in _NAMING.items() for path in paths.split()}
"""What dotted paths name; ``*`` stands for any key or index. Data sets and models also name files in fields of their
own."""

_SECTIONS: dict[str, Registry[Any]] = {"data": DATA_SETS, "model": MODELS}
"""Sections whose parts may have options that name files."""


def anchored(data: Mapping[str, Any], folder: Path, *, only_files: bool = False) -> dict[str, Any]:
    """A copy of a scenario's data in which relative paths start at ``folder``; absolute paths are unchanged.

    With ``only_files`` these are only paths of files and folders that exist there.

    >>> anchored({"data": {"root": "images"}, "fleet": [{"profile": "raspberry-pi-5"}]}, Path("/home/me"))
    {'data': {'root': '/home/me/images'}, 'fleet': [{'profile': 'raspberry-pi-5'}]}
    """
    result = copy.deepcopy(dict(data))
    for container, key, what in _named_in(result, FILES | _named_by_parts(data)):
        if (only_files and what not in EXISTS) or _is_name(container[key], what):
            continue
        with suppress(UserError):  # the reader of the file refuses it with the name of the field
            path = folder / user_path(container[key])
            if what not in EXISTS or EXISTS[what](path):
                container[key] = str(path)
    return result


def code_in(data: Mapping[str, Any]) -> list[Path]:
    """The Python files in a scenario's data that define options, before these are read."""
    found = list[Path]()
    for container, key, what in _named_in(data, FILES):
        with suppress(UserError):  # the reader of the part reports it
            found += [UserCode.of(container[key]).file] if what == "code" else []
    return found


def _named_in(data: Any, places: Mapping[str, Place]) -> Iterator[tuple[Any, Any, Place]]:
    """The container and the key of each text that names something, and what it names."""
    for pattern, what in places.items():
        for container, key in each_at(data, pattern.split(".")):
            if isinstance(container[key], str):  # else a part, whose own field names the file
                yield container, key, what


def _named_by_parts(data: Mapping[str, Any]) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for section, parts in _SECTIONS.items():
        options = data.get(section)
        if isinstance(options, Mapping):
            with suppress(UserError):  # the section's reader reports it
                naming = naming_fields(part_of(parts, options, "name")[1])
                found |= {f"{section}.{name}": what for name, what in naming.items()}
                # `test: FILE` stands for `test_data: FILE`
                if section == "data" and "test_data" in naming and options.get("test") not in ("whole", "partitioned"):
                    found["data.test"] = naming["test_data"]
    return found


def what_decides(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a resolved scenario's data without values that do not affect results.

    These are the locations of files, and the choice among the engines that agree bit for bit. The contents of files
    are compared elsewhere.

    >>> what_decides({"data": {"root": "/images", "clients": 8}})
    {'data': {'root': None, 'clients': 8}}
    """
    result = copy.deepcopy(dict(data))
    for container, key, what in _named_in(result, FILES | _named_by_parts(data)):
        if what != "profile":
            container[key] = container[key].rpartition(":")[2] if what == "code" else None
    for container, key in each_at(result, ["training", "engine", "kind"]):
        kind = container[key]
        if kind == "auto" or (kind in ENGINES.names() and ENGINES[kind].alike):
            container[key] = None
    for container in (result, result.get("budgets"), *(result.get("fleet") or ())):
        for name in ("figures", "start", "prices", "timezone", "grams", "euros"):  # earlier builds did not write them
            if isinstance(container, dict) and not container.get(name):
                container.pop(name, None)
    return result


def each_at(container: Any, pattern: list[str]) -> Iterator[tuple[Any, Any]]:
    """The container and the key of each value at a path; ``*`` stands for any key or index."""
    name, *rest = pattern
    keys: list[Any] = []
    if isinstance(container, dict):
        keys = list(container) if name == "*" else [name] if name in container else []
    elif isinstance(container, list) and name == "*":
        keys = list(range(len(container)))
    for key in keys:
        if rest:
            yield from each_at(container[key], rest)
        else:
            yield container, key


def _is_name(text: str, what: Place) -> bool:
    """True for a name of shipped traces, or of a profile."""
    if what == "traces":
        return text in shipped.files("traces")
    return what == "profile" and not is_path(text)


@dataclass(frozen=True)
class Override:
    """One change: its path, its value, and its origin for messages."""

    path: tuple[str, ...]
    value: Any
    origin: str

    def evidence(self, error: UserError) -> int:
        """How surely an error is about this change, from 5 to 0: not at all."""
        field, path = tuple((error.field or "").split(".")), self.path
        words = "|".join(map(re.escape, re.findall(r"[\w./+-]*\w", str(self.value))))
        # "no array 'nope' in this file"
        quoted = (
            bool(words) and re.search(rf"(?:'|/|found |expected )(?:{words})(?![\w.]*\w)", error.message) is not None
        )
        # "at most data.clients (5)"
        named = any(_is_within(tuple(other.split(".")), path) for other in _DOTTED.findall(error.message))
        if _is_within(field, path):
            return 5 if named or quoted else 4
        beside = path[:-1] == field[: len(path) - 1] != ()
        if named or (beside and path[-1] in ("kind", "name", "method")):  # the part has other options
            return 3
        if beside and len(field) == len(path) and error.message.startswith("this key is missing"):
            return 2  # the change began the mapping
        return int(bool(quoted) and path[0] == field[0] and isinstance(self.value, str))


def _is_within(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """True if one of two paths is a prefix of the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


Overrides = Mapping[str, Any] | Sequence[str | Override]
"""Either paths to values, or texts of the form ``PATH=VALUE``."""

_DOTTED = re.compile(r"\b[a-z_]\w*(?:\.\w+)+\b")


def blamed(error: UserError, changes: Sequence[Override], file: str | None) -> UserError:
    """The same error, located at the last change that may have caused it, else in ``file``.

    >>> changes = parse_overrides(["data.clients=5"])
    >>> str(blamed(UserError("at most data.clients (5)", field="training.cohort"), changes, "mine.yaml"))
    '--set data.clients=5: training.cohort: at most data.clients (5)'
    """
    culprit = max(reversed(changes), key=lambda change: change.evidence(error), default=None)
    return error.located(file=culprit.origin if culprit and culprit.evidence(error) else file)


@contextmanager
def blaming_changes(changes: Overrides, file: str | None) -> Iterator[None]:
    """An error that is raised in the block is located at the change that caused it, else in ``file``."""
    try:
        yield
    except UserError as error:
        raise blamed(error, parse_overrides(changes), file) from None


def parse_overrides(overrides: Overrides, option: str = "--set") -> list[Override]:
    """The changes in the order given; ``option`` is that of a text on the command line, for messages.

    >>> [(change.path, change.value) for change in parse_overrides(["training.local.lr=1e-2", "budgets=null"])]
    [(('training', 'local', 'lr'), 0.01), (('budgets',), None)]
    """
    if isinstance(overrides, str):  # a text is also a sequence of texts
        overrides = [overrides]
    if isinstance(overrides, Mapping):
        return [Override(_path(path, path), copy.deepcopy(value), "overrides") for path, value in overrides.items()]
    return [each if isinstance(each, Override) else _parsed(each, option) for each in overrides]


def of_engine(kind: str) -> list[Override]:
    """The change of ``--engine``, with that option as origin."""
    return [Override(("training", "engine", "kind"), kind, f"--engine {kind}")]


def _parsed(text: str, option: str) -> Override:
    origin = f"{option} {text if len(text) <= 80 else f'{text[:50]} … {text[-27:]}'}"
    path, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise UserError("expected PATH=VALUE, such as training.rounds=20 (null: no value)", file=origin)
    # As an item of a list, so that null is a value and not an empty document.
    item = "- " + value.replace("\n", "\n  ")
    return Override(_path(path.strip(), origin), parse_yaml(item, file=origin)[0], origin)


def _path(path: str, origin: str) -> tuple[str, ...]:
    names = tuple(path.split("."))
    if not all(name.strip() for name in names):
        raise UserError(f"expected a dotted path such as training.rounds, found {shown(path)}", file=origin)
    return names


def overridden(data: Mapping[str, Any], changes: Sequence[Override]) -> dict[str, Any]:
    """A copy of ``data`` with the changes made, in order.

    >>> overridden({"methods": ["fedprox"]}, parse_overrides(["methods.0.mu=0.1"]))
    {'methods': [{'method': 'fedprox', 'mu': 0.1}]}
    """
    result = copy.deepcopy(dict(data))
    for change in changes:
        container: Any = result
        for depth, name in enumerate(change.path[:-1]):
            container = _entered(container, name, change, depth)
        container[_key(container, change.path[-1], change, len(change.path) - 1)] = copy.deepcopy(change.value)
    return result


def _entered(container: Any, name: str, change: Override, depth: int) -> Any:
    """The value at ``name``; a missing value or a method's name is replaced by a mapping."""
    key = _key(container, name, change, depth)
    inner = container.get(key) if isinstance(container, dict) else container[key]
    if inner is None:
        inner = container[key] = {}
    elif isinstance(inner, str) and depth == 1 and change.path[0] == "methods":
        inner = container[key] = {"method": inner}
    elif not isinstance(inner, dict | list):
        found = f"{'.'.join(change.path[: depth + 1])} is {shown(inner)}, which has no keys"
        raise UserError(found, field=".".join(change.path), file=change.origin)
    return inner


def _key(container: Any, name: str, change: Override, depth: int) -> str | int:
    if isinstance(container, dict):
        # Keys in a file may be numbers (a link called 5); keys in a path are texts.
        return next((key for key in container if str(key) == name), name)
    place = ".".join(change.path[:depth])
    if not name.isascii() or not name.isdigit() or int(name) >= len(container):
        last = len(container) - 1
        expected = f"an index from 0 to {last}" if container else "no item, because the list is empty"
        message = f"{place} is a list: expected {expected}, found {shown(name)}"
        raise UserError(message, field=".".join(change.path), file=change.origin)
    return int(name)
