"""Registries of parts by name, and parts chosen by their entry in a scenario.

A family of parts (methods, device profiles, selectors, data sets) is a folder with one module for each part, and an
entry-point group for parts of other packages. No other list of the parts exists. A plug-in is imported when it is
used; any error while it is imported, even ``sys.exit``, becomes one :class:`~edgefl.errors.UserError` that names the
plug-in and its package.
"""

import contextlib
import importlib
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache, reduce
from importlib.metadata import EntryPoint, entry_points
from operator import or_
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    InstanceOf,
    SerializeAsAny,
    Tag,
    create_model,
)
from pydantic_core import CoreSchema

from edgefl.errors import BrokenPlugIn, UserError, WrongAnswer, in_words, locating, misspelt, nearest
from edgefl.input_file import InputCode
from edgefl.options import Options
from edgefl.user_code import UserCode
from edgefl.validation import as_validator, shown, validated
from edgefl.wording import with_article

Part = TypeVar("Part")
Model = TypeVar("Model", bound=BaseModel)
Made = TypeVar("Made")

Check = Callable[[Any], None]
"""Raises :class:`UserError` if an object is not a part of a family; the message states what was expected."""


class PlugIns:
    """The entry points of one group. Names come from metadata; a part is imported at first use.

    Args:
        noun: the word for one part (``"method"``), for messages.
        group: the entry-point group; each entry point loads a part.
        check: raises an error for an object that is not such a part.
    """

    def __init__(self, noun: str, group: str, check: Check) -> None:
        self._noun = noun
        self._group = group
        self._check = check
        self._loaded: dict[str, Any] = {}

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        points: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self._group):
            points.setdefault(point.name, []).append(point)
        return points

    def names(self) -> list[str]:
        return list(self._points)

    def __contains__(self, name: str) -> bool:
        return name in self._points

    def origin(self, name: str) -> str:
        """The package that registers a name, and the part's module; if there are several packages, all of them."""
        return " and ".join(f"{_package(point)} ({point.value})" for point in self._points[name])

    def is_own(self, name: str, part: Any) -> bool:
        """True if a part is that of the entry point, which its module may have registered itself."""
        if self._loaded.get(name) is part:
            return True
        modules = [(point, sys.modules.get(point.module)) for point in self._points[name]]
        return any(getattr(module, point.attr, None) is part for point, module in modules)

    def load(self, name: str) -> Any:
        """The part called ``name``; output of its module goes to standard error."""
        if name in self._loaded:
            return self._loaded[name]
        point, *others = self._points[name]
        if others:
            raise UserError(f"several {self._noun}s are called '{name}': {self.origin(name)}; uninstall all but one")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # not into a command's output
                part = point.load()
            self._check(part)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.fault(name, error) from error
        self._loaded[name] = part
        return part

    def clash(self, name: str) -> UserError:
        """The error for a plug-in that has the name of a built-in part."""
        return UserError(
            f"two {self._noun}s are called '{name}': the built-in one and that of {self.origin(name)}; uninstall or "
            "rename the latter"
        )

    def fault(self, name: str, error: BaseException) -> UserError:
        """The error for a plug-in that cannot be used, with the reason."""
        return UserError(f"the {self._noun} '{name}' of {self.origin(name)} cannot be used: {in_words(error)}")


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"


class Registry(Generic[Part]):
    """The parts of one family by name.

    Built-in parts are registered when the modules of ``package`` are imported, all together; a plug-in's part is
    imported when it is requested by its name in an entry-point ``group`` (empty: plug-ins cannot add parts). ``noun``
    is the word for one part in messages; ``check`` refuses an object that is not such a part. The parts of a ``base``
    are classes derived from it, which a scenario can also name in a Python file: ``python: FILE.py:NAME``.
    """

    def __init__(
        self, noun: str, *, package: str, group: str = "", check: Check = lambda _: None, base: type | None = None
    ) -> None:
        self.noun, self.base = noun, base
        check = check if base is None else class_of(base)
        self._package = package
        self.plug_ins = PlugIns(noun, group, check)
        self._parts: dict[str, Part] = {}
        self._loaded = False
        self._loading = threading.RLock()

    def __setitem__(self, name: str, part: Part) -> None:
        if self._parts.setdefault(name, part) is not part:
            raise ValueError(f"two {self.noun}s are called '{name}'")

    def register(self, name: str) -> Callable[[Part], Part]:
        """A decorator that adds a part."""

        def add(part: Part) -> Part:
            self[name] = part
            return part

        return add

    def _load(self) -> None:
        with self._loading:  # other threads wait until the whole family is imported
            if self._loaded:
                return
            self._loaded = True  # a part that uses its own family during import does not wait
            package = importlib.import_module(self._package)
            for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
                importlib.import_module(f"{self._package}.{module}")

    def built_in(self) -> dict[str, Part]:
        """The parts of edgefl itself, by name."""
        self._load()
        return {name: part for name, part in sorted(self._parts.items()) if name not in self.plug_ins}

    def names(self) -> list[str]:
        """All names, sorted, including those of broken plug-ins; no plug-in is imported."""
        self._load()
        return sorted({*self._parts, *self.plug_ins.names()})

    def __getitem__(self, name: str) -> Part:
        """The part called ``name``."""
        self._load()
        if name in self.plug_ins:
            if name in self._parts and not self.plug_ins.is_own(name, self._parts[name]):
                raise self.plug_ins.clash(name)
            return self._parts.setdefault(name, self.plug_ins.load(name))
        if name not in self._parts:
            raise UserError(f"unknown {self.noun} '{name}'; {nearest(name, self.names())}")
        return self._parts[name]

    def name_of(self, part: Part) -> str | None:
        """The name of a registered part; ``None`` if it is not registered, or is a plug-in's that was not requested."""
        return next((name for name in sorted(self._parts) if self._parts[name] is part), None)

    def of_each(self, make: Callable[[str, Part], Made]) -> dict[str, Made]:
        """The result of ``make`` for every part, by name.

        A plug-in that cannot be loaded, or for which ``make`` fails, is omitted with a :class:`BrokenPlugIn` warning.
        """
        made: dict[str, Made] = {}
        for name in self.names():
            try:
                made[name] = make(name, self[name])
            except Exception as error:
                if name not in self.plug_ins:
                    raise
                fault = error if isinstance(error, UserError) else self.plug_ins.fault(name, error)
                warnings.warn(str(fault), BrokenPlugIn, stacklevel=1)  # from one place, so that it is shown once
        return made

    @contextmanager
    def blaming(self, part: Part) -> Iterator[None]:
        """Errors in the block are those of ``part``, which the message names, with the package of a plug-in."""
        try:
            yield
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:
            name = self.name_of(part)
            if name is not None and name in self.plug_ins:
                raise self.plug_ins.fault(name, error) from error
            if not isinstance(error, WrongAnswer):
                raise
            shown_name = name or getattr(part, "__name__", str(part))
            raise UserError(f"the {self.noun} '{shown_name}' cannot be used: {error}") from error

    def __iter__(self) -> Iterator[tuple[str, Part]]:
        return iter(self.of_each(lambda _, part: part).items())


def class_of(base: type) -> Check:
    """A check that parts are classes derived from ``base`` that define all its abstract methods.

    >>> class_of(dict)(3)
    Traceback (most recent call last):
    edgefl.errors.UserError: expected a class derived from dict, found 3
    """

    def check(part: Any) -> None:
        if not (isinstance(part, type) and issubclass(part, base)):
            found = f"the class {part.__name__}" if isinstance(part, type) else shown(part)
            raise UserError(f"expected a class derived from {base.__name__}, found {found}")
        missing = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
        if missing:
            raise UserError(f"expected a class derived from {base.__name__} that defines {missing}")

    return check


def object_of(kind: type) -> Check:
    """A check that parts are objects of the class ``kind``."""

    def check(part: Any) -> None:
        if not isinstance(part, kind):
            raise UserError(f"expected an object of the class {kind.__name__}, found {shown(part)}")

    return check


def part_of(parts: Registry[type[Model]], options: Mapping[str, Any], tag: str) -> tuple[str, type[Model]]:
    """The part that a mapping means, and its name: the value of ``tag``.

    If this key is missing, and exactly one key is the name of a part that has a field of the same name, that part is
    meant: ``{python: data.py:load}`` is ``{name: python, python: data.py:load}``. The class of a family with a base
    may stand in a Python file: ``{python: mine.py:Mine}``.
    """
    if parts.base is not None and OWN in options and options.get(tag, OWN) == OWN:
        return OWN, _in_file(parts.base, options[OWN])
    with locating(field=tag):
        name = _name_in(parts, options, tag)
        return name, parts[name]


OWN = "python"
"""The name of a part in a Python file, and the key that names the file."""

_IN_A_FILE = Field(description="the class, FILE.py:NAME")


class Unread(Options, extra="allow"):
    """A part of a run directory's scenario whose Python file may not be executed; it only keeps its options."""

    kind: Literal["python"] = "python"
    python: InputCode = _IN_A_FILE


def _in_file(base: type, reference: Any) -> type[Any]:
    """The class that ``FILE.py:NAME`` means, derived from ``base``, with the reference as a further option."""
    if not isinstance(reference, str):
        raise UserError(f"expected FILE.py:NAME, found {shown(reference)}", field=OWN)
    code = UserCode.of(reference)
    if not code.allowed():
        return Unread
    part = code.load(kind=type)
    try:
        class_of(base)(part)
    except UserError as error:
        raise UserError(f"'{code.name}': {error.message}", file=str(code.file)) from None
    return _with_reference(part)


@lru_cache
def _with_reference(part: type[BaseModel]) -> type[BaseModel]:
    return create_model(part.__name__, __base__=part, __module__=part.__module__, python=(InputCode, _IN_A_FILE))


class OneOf:
    """Marks the type of an option that is one part of a family: ``Annotated[Base, OneOf(PARTS)]``.

    A scenario writes a mapping with ``kind``, which may be missing for the ``default``; it becomes an object with this
    ``kind``. ``plain`` is the type of a short form, which another validator turns into such a mapping.
    """

    def __init__(self, parts: Registry[type[Model]], *, plain: Any = None, default: str | None = None) -> None:
        self._parts, self._plain, self._default = parts, plain, default

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        built_in = self._parts.built_in()
        members = [Annotated[part, Tag(name)] for name, part in built_in.items()]
        other = Annotated[SerializeAsAny[InstanceOf[BaseModel]], Tag(OWN)]
        plain = () if self._plain is None else (self._plain,)
        read = BeforeValidator(self._read, json_schema_input_type=reduce(or_, (*plain, *built_in.values(), Unread)))
        union = reduce(or_, (*members, other))
        return handler.generate_schema(Annotated[union, Discriminator(self._kind), read])

    def _read(self, value: Any) -> Any:
        """A part of a plug-in or of a Python file; other values are unchanged."""
        if not isinstance(value, Mapping) or not (OWN in value or str(value.get("kind")) in self._parts.plug_ins):
            return value
        return as_validator(lambda value: validated(part_of(self._parts, value, "kind")[1], dict(value)))(value)

    def _kind(self, value: Any) -> Any:
        name = value.get("kind", self._default) if isinstance(value, Mapping) else getattr(value, "kind", None)
        return OWN if isinstance(value, BaseModel) and name not in self._parts.built_in() else name


def _name_in(parts: Registry[type[Model]], options: Mapping[str, Any], tag: str) -> str:
    if tag in options:
        names = [options[tag]]
    else:
        names = [name for name in parts.names() if name in options and names_itself(name, parts[name])]
    if not names:
        hint = misspelt(tag, options)
        raise UserError(f"this key is missing; expected one of: {', '.join(parts.names())}{hint}")
    if len(names) > 1:
        raise UserError(f"expected one {parts.noun}, found {' and '.join(names)}")
    if not isinstance(names[0], str):
        raise UserError(f"expected the name of {with_article(parts.noun)}, found {shown(names[0])}")
    return names[0]


def names_itself(name: str, part: type[BaseModel]) -> bool:
    """True if a part has a field of its own name, so that a mapping with this key needs no name."""
    return name in part.model_fields


def tagged(schema: Mapping[str, Any], tag: str, name: str, part: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a part's options, with the part's name under the key ``tag``."""
    properties = schema.get("properties", {})
    required = set(schema.get("required", [])) - {tag}
    result = {**schema, "properties": {**properties, tag: {**properties.get(tag, {}), "const": name}}}
    if names_itself(name, part):
        result["anyOf"] = [{"required": [tag]}, {"required": [name]}]
    else:
        required.add(tag)
    return {**result, "required": sorted(required)}


def chosen_part(parts: Registry[type[Model]], entry: Any) -> Model:
    """The part that an entry names: a name, or a mapping with ``kind`` and options (:func:`part_of`), or the part."""
    if isinstance(entry, BaseModel):
        return entry  # type: ignore[return-value]
    if not isinstance(entry, str | Mapping):
        raise UserError(
            f"expected the name of {with_article(parts.noun)} or a mapping with the key kind, found {shown(entry)}"
        )
    options = {"kind": entry} if isinstance(entry, str) else dict(entry)
    _, part = part_of(parts, options, "kind")
    options.pop("kind", None)
    return validated(part, options, known=("kind",))
