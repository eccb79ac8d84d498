"""Load a Flower app as ``flwr run`` does: its components and run configuration are in its ``pyproject.toml``."""

import hashlib
import importlib
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.errors import UserError, in_words, nearest, optional
from edgefl.files import read_bytes
from edgefl.flower.scenario import AppSpec
from edgefl.input_file import digest_of_file
from edgefl.validation import shown

OLDEST = (1, 42)

_CODE = (".py", ".toml")


@dataclass(frozen=True)
class App:
    """An app whose code is imported; ``run_config`` includes the scenario's values, ``folder`` contains its code."""

    server: Any
    client: Any
    run_config: dict[str, Any]
    folder: Path


def require_flwr() -> None:
    """Raise UserError if flwr is missing or too old."""
    found = optional("flwr", "flower", field="flower").__version__
    version = tuple(int(part) for part in str(found).split(".")[:2])
    if version < OLDEST:
        raise UserError(f"expected flwr {OLDEST[0]}.{OLDEST[1]} or later, found {found}", field="flower")


def read_app(spec: AppSpec) -> tuple[dict[str, str], dict[str, Any]]:
    """The references of an app's components, and its run configuration; no code of the app is executed."""
    require_flwr()
    from flwr.common.config import flatten_dict, get_project_config

    file = Path(spec.app) / "pyproject.toml"
    try:
        read_bytes(file)
        config = get_project_config(spec.app)["tool"]["flwr"]["app"]
        known: Mapping[str, Any] = flatten_dict(config.get("config", {}))
        components = {name: config["components"].get(name) for name in ("serverapp", "clientapp")}
    except UserError as error:
        raise error.located(field="flower.app") from None
    except Exception as error:  # noqa: BLE001  (Flower takes tables for granted where the file may contain anything)
        reason = " ".join(str(error).split()) if isinstance(error, ValueError) else in_words(error)
        message = f"expected the pyproject.toml of a Flower app: {reason}"
        raise UserError(message, file=str(file), field="flower.app") from None
    for name, reference in components.items():
        if not isinstance(reference, str) or not re.fullmatch(r"[\w.]+:[\w.]+", reference):
            message = f"expected MODULE:NAME, such as app.server:app, found {shown(reference)}"
            raise UserError(message, file=str(file), field=f"tool.flwr.app.components.{name}")
    for key in spec.run_config:
        if key not in known:
            hint = nearest(key, known) if known else "the app has no [tool.flwr.app.config]"
            raise UserError(f"the app has no such key; {hint}", field=f"flower.run_config.{key}")
        value, own = spec.run_config[key], known[key]
        if type(value) is not type(own) and not (isinstance(own, float) and type(value) is int):
            kind = {bool: "true or false", int: "a whole number", float: "a number"}.get(type(own), "text")
            message = f"expected {kind}, as the app's own {shown(own)}, found {shown(value)}"
            raise UserError(message, field=f"flower.run_config.{key}")
    return components, {**known, **spec.run_config}


def digest_of_app(folder: str) -> str:
    """The SHA-256 of the app's Python and TOML files with their paths; UserError if the folder does not exist."""
    root = Path(folder)
    if not root.is_dir():
        raise UserError("no such folder", file=folder, field="flower.app")
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.suffix in _CODE and _is_own(inside) and path.is_file():
            digest.update(f"{inside.as_posix()}\0{digest_of_file(path)}\n".encode())
    return digest.hexdigest()


@contextmanager
def loaded(spec: AppSpec) -> Iterator[App]:
    """The app, freshly imported; its modules are forgotten at the end, so every run starts with new globals."""
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    components, run_config = read_app(spec)
    folder = Path(spec.app).resolve()
    path, known = list(sys.path), set(sys.modules)
    others = {name: sys.modules.pop(name) for name in known if _is_of(sys.modules[name], folder)}
    importlib.invalidate_caches()
    try:
        sys.path.insert(0, str(folder))
        server = _component(components["serverapp"], ServerApp, spec)
        client = _component(components["clientapp"], ClientApp, spec)
        yield App(server, client, run_config, folder)
    finally:
        sys.path[:] = path
        for name in (set(sys.modules) - known) | (set(sys.modules) & set(others)):
            if _is_of(sys.modules[name], folder):
                del sys.modules[name]
        sys.modules.update(others)


def own_path(file: str | Path, folder: Path) -> Path | None:
    """The path of a file in an app's resolved folder; None if it is elsewhere, or an environment's or a tool's."""
    path = Path(file).resolve()
    if not path.is_relative_to(folder):
        return None
    inside = path.relative_to(folder)
    return inside if _is_own(inside) else None


def _is_own(inside: Path) -> bool:
    return not any(part == "site-packages" or part.startswith(".") for part in inside.parts)


def located_error(error: BaseException, folder: Path) -> str:
    """An error as one line, with the last line of the app's own code that it came through, if there is one."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if (inside := own_path(frame.filename, folder)) is not None:
            place = f" ({inside.as_posix()}, line {frame.lineno}, in {frame.name})"
    return in_words(error) + place


def _is_of(module: Any, folder: Path) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return file is not None and own_path(file, folder) is not None


def _component(reference: str, kind: type, spec: AppSpec) -> Any:
    try:
        found: Any = pkgutil.resolve_name(reference)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the app may call sys.exit
        message = f"'{reference}' cannot be loaded: {located_error(error, Path(spec.app).resolve())}"
        raise UserError(message, file=spec.app, field="flower.app") from error
    if not isinstance(found, kind):
        message = f"expected {kind.__name__} as '{reference}', found {type(found).__name__}"
        raise UserError(message, file=spec.app, field="flower.app")
    return found
