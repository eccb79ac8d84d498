"""``--set PATH=VALUE``: change a scenario's data before it is checked.

A path is dotted, with list items by index (``fleet.0.share``). The value is YAML and replaces the old value. Missing
mappings on the path are created; whether a key is valid is checked by the scenario's schema.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from edgefl import shipped
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.input_file import EXISTS, Named, naming_fields
from edgefl.models.registry import MODELS
from edgefl.registry import Registry, part_of
from edgefl.training.engine_spec import ENGINES
from edgefl.user_code import UserCode
from edgefl.validation import shown
from edgefl.yaml_file import parse_yaml

Place = Named | Literal["root", "profile"]

FILES: dict[str, Place] = {
    "data.root": "root",
    "network.topology.file": "file",
    "network.links.*.*.file": "traces",
    "network.links.*.*.python": "code",
    "data.partition.file": "file",
    "fleet.*.profile": "profile",
    "fleet.*.availability.file": "file",
    "figures.*.python": "code",
    "flower.app": "root",
    "methods.*.app": "root",
    "methods.*.python": "code",
    "methods.*.scheduler.python": "code",
    "methods.*.profile": "profile",
    "methods.*.local.optimizer.python": "code",
    "protocol.python": "code",
    "training.bandwidth.python": "code",
    "training.local.optimizer.python": "code",
    "training.selection.python": "code",
}
"""What dotted paths name; ``*`` stands for any key or index. Data sets and models also name files in fields of their
own."""

_SECTIONS: dict[str, Registry[Any]] = {"data": DATA_SETS, "model": MODELS}
"""Sections whose parts may have options that name files."""


def anchored(data: Mapping[str, Any], folder: Path, *, only_files: bool = False) -> dict[str, Any]:
    """A copy of a scenario's data in which relative paths start at ``folder``; absolute paths are unchanged.

    >>> anchored({"data": {"root": "images"}, "fleet": [{"profile": "raspberry-pi-5"}]}, Path("/home/me"))
    {'data': {'root': '/home/me/images'}, 'fleet': [{'profile': 'raspberry-pi-5'}]}
    """
    result = copy.deepcopy(dict(data))
    for pattern, what in (FILES | _named_by_parts(data)).items():
        if not only_files or what in EXISTS:
            each_at(result, pattern.split("."), partial(_anchor, folder=folder, what=what))
    return result


def code_in(data: Mapping[str, Any]) -> list[Path]:
    """The Python files in a scenario's data that define options, before these are read."""
    found = list[Path]()

    def take(container: Any, key: Any) -> None:
        if isinstance(container[key], str):
            with suppress(UserError):  # the reader of the part reports it
                found.append(UserCode.of(container[key]).file)

    for pattern, what in FILES.items():
        if what == "code":
            each_at(data, pattern.split("."), take)
    return found


def _named_by_parts(data: Mapping[str, Any]) -> dict[str, Named]:
    found: dict[str, Named] = {}
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


def found_below(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A copy in which paths of files that are still relative, and exist in ``folder``, start at ``folder``."""
    if not folder.is_dir():
        return dict(data)
    return anchored(data, folder, only_files=True)


def what_decides(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a resolved scenario's data without values that do not affect results.

    These are the locations of files, and the choice among the engines that agree bit for bit. The contents of files
    are compared elsewhere.

    >>> what_decides({"data": {"root": "/images", "clients": 8}})
    {'data': {'root': None, 'clients': 8}}
    """
    result = copy.deepcopy(dict(data))
    for pattern, what in (FILES | _named_by_parts(data)).items():
        if what != "profile":
            each_at(result, pattern.split("."), _without_file if what == "code" else _emptied)
    each_at(result, ["training", "engine", "kind"], _emptied_if_alike)
    if not result.get("figures"):  # earlier builds did not write it
        result.pop("figures", None)
    return result


def _emptied(container: Any, key: Any) -> None:
    if isinstance(container[key], str):  # else a part, whose own field names the file
        container[key] = None


def _without_file(container: Any, key: Any) -> None:
    """Keep the name of an object in a Python file."""
    container[key] = container[key].rpartition(":")[2]


def _emptied_if_alike(container: Any, key: Any) -> None:
    kind = container[key]
    if kind == "auto" or (kind in ENGINES.names() and ENGINES[kind].alike):
        container[key] = None


def _anchor(container: Any, key: Any, folder: Path, what: Place) -> None:
    if isinstance(container[key], str) and not _is_name(container[key], what):
        try:
            path = folder / user_path(container[key])
        except UserError:
            return  # the reader of the file refuses it with the name of the field
        if what not in EXISTS or EXISTS[what](path):
            container[key] = str(path)


def each_at(container: Any, pattern: list[str], act: Callable[[Any, Any], None]) -> None:
    """Call ``act`` with the container and the key of each value at a path; ``*`` stands for any key or index."""
    name, *rest = pattern
    if isinstance(container, dict):
        keys: list[Any] = list(container) if name == "*" else [name] if name in container else []
    elif isinstance(container, list):
        keys = list(range(len(container))) if name == "*" else []
    else:
        return
    for key in keys:
        if rest:
            each_at(container[key], rest, act)
        else:
            act(container, key)


def _is_name(text: str, what: Place) -> bool:
    """True for a name of shipped traces, or of a profile."""
    if what == "traces":
        return text in shipped.files("traces")
    return what == "profile" and not (text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text)


@dataclass(frozen=True)
class Override:
    """One change: its path, its value, and its origin for messages."""

    path: tuple[str, ...]
    value: Any
    origin: str

    def concerns(self, field: str | None) -> bool:
        """True if an error about ``field`` may be about this change: one of the two paths is a prefix of the other."""
        other = tuple(field.split(".")) if field else ()
        shorter = min(len(other), len(self.path))
        return shorter > 0 and other[:shorter] == self.path[:shorter]

    def renames(self, field: str | None) -> bool:
        """True if this change replaced the part that ``field`` belongs to by another part with other options."""
        return self.path[-1] in ("kind", "name", "method") and f"{field}.".startswith(".".join(self.path[:-1]) + ".")

    def is_missing(self, error: UserError) -> bool:
        """True if this change began the mapping in which a key is missing."""
        beside = (error.field or "").split(".")[:-1] == list(self.path[:-1]) != []
        return beside and error.message.startswith("this key is missing")

    def is_quoted_in(self, message: str) -> bool:
        """True if the message quotes a word of this change's value: "no array 'nope' in this file"."""
        words = "|".join(map(re.escape, re.findall(r"[\w./+-]*\w", str(self.value))))
        return bool(words) and re.search(rf"(?:'|/|found |expected )(?:{words})(?![\w.]*\w)", message) is not None

    def is_named_in(self, message: str) -> bool:
        """True if the message of another error names the field of this change: "at most data.clients (5)"."""
        return any(self.concerns(field) for field in _DOTTED.findall(message))


Overrides = Mapping[str, Any] | Sequence[str | Override]
"""Either paths to values, or texts of the form ``PATH=VALUE``."""

_DOTTED = re.compile(r"\b[a-z_]\w*(?:\.\w+)+\b")


def blamed(error: UserError, changes: Sequence[Override], file: str | None) -> UserError:
    """The same error, located at the last change that may have caused it, else in ``file``.

    >>> changes = parse_overrides(["data.clients=5"])
    >>> str(blamed(UserError("at most data.clients (5)", field="training.cohort"), changes, "mine.yaml"))
    '--set data.clients=5: training.cohort: at most data.clients (5)'
    """
    last_first, section = list(reversed(changes)), (error.field or "").partition(".")[0]
    named = [change for change in last_first if change.is_named_in(error.message)]
    quoted = [change for change in last_first if change.is_quoted_in(error.message)]
    culprits = [change for change in last_first if change.concerns(error.field)]
    culprits.sort(key=lambda change: change not in named and change not in quoted)
    culprits += [change for change in last_first if change in named or change.renames(error.field)]
    culprits += [change for change in last_first if change.is_missing(error)]
    culprits += [change for change in quoted if change.path[0] == section and isinstance(change.value, str)]
    return error.located(file=culprits[0].origin if culprits else file)


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
        _replace(container, change)
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


def _replace(container: Any, change: Override) -> None:
    key = _key(container, change.path[-1], change, len(change.path) - 1)
    container[key] = copy.deepcopy(change.value)


def _key(container: Any, name: str, change: Override, depth: int) -> str | int:
    if isinstance(container, dict):
        # Keys in a file may be numbers (a link called 5); keys in a path are texts.
        return next((key for key in container if str(key) == name), name)
    place = ".".join(change.path[:depth])
    if not name.isascii() or not name.isdigit() or int(name) >= len(container):
        last = len(container) - 1
        expected = f"an index from 0 to {last}" if container else "no item, because the list is empty"
        raise UserError(
            f"{place} is a list: expected {expected}, found {shown(name)}",
            field=".".join(change.path),
            file=change.origin,
        )
    return int(name)
