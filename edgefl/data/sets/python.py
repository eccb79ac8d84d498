"""Data from a function in a Python file of the user."""

import contextlib
import json
import sys
import traceback
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from edgefl.data.array_files import of_tensor
from edgefl.data.own_data import OwnArrays, Raw
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, in_words, one_line
from edgefl.input_file import InputCode
from edgefl.user_code import UserCode

SPLITS = ("train", "test")


@DATA_SETS.register("python")
class Python(OwnArrays):
    """What a function returns: ``{"train": (x, y), "test": (x, y)}``, with a third array for the samples' clients.

    A split is a tuple of arrays or a PyTorch data set of such tuples. Without ``test``, a share of ``train`` is it.
    """

    name: Literal["python"] = Field(default="python", description="data from a function in a Python file")
    python: InputCode = Field(description="the function, FILE.py:NAME")
    args: dict[str, JsonValue] = Field(default={}, description="keyword arguments of the function")

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def raw(self) -> tuple[Raw, Raw | None]:
        """The arrays that the function returns; it is called once for each version of its file."""
        code = UserCode.of(self.python)
        return _called(self.python, json.dumps(self.args), code.digest())


@lru_cache(maxsize=1)
def _called(reference: str, args: str, digest: str) -> tuple[Raw, Raw | None]:
    code = UserCode.of(reference)
    load, place = code.load(digest), str(code.file)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # not into a command's output
            answer = load(**json.loads(args))
            if isinstance(answer, Mapping):
                answer = {split: _arrays(split, value, place) for split, value in answer.items()}
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:
        raise UserError(_reason(error, code), file=place) from error
    if not isinstance(answer, Mapping) or "train" not in answer or set(answer) - set(SPLITS):
        found = f"the keys {', '.join(map(str, answer))}" if isinstance(answer, Mapping) else one_line(answer)
        message = f"expected '{code.name}' to return a mapping with train and possibly test, found {found}"
        raise UserError(message, file=place)
    return answer["train"], answer.get("test")


def _reason(error: BaseException, code: UserCode) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(code.file)]
    line = f"line {lines[-1]}: " if lines else ""
    return f"{line}'{code.name}' raised an error: {in_words(error)}"


def _arrays(split: str, value: Any, place: str) -> Raw:
    if not isinstance(value, tuple | list) and hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        value = _columns(split, [value[index] for index in range(len(value))], place)
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise UserError(
            f"expected '{split}' as a tuple of inputs, labels and possibly clients, or a PyTorch data set, found "
            f"{one_line(value)}",
            file=place,
        )
    names = f"{split} inputs", f"{split} labels", f"{split} clients"
    inputs, targets, *client = (_array(part, name, place) for part, name in zip(value, names, strict=False))
    return Raw(inputs, targets, client[0] if client else None, names, place)


def _columns(split: str, samples: list[Any], place: str) -> tuple[list[Any], ...]:
    lengths = {len(sample) if isinstance(sample, tuple | list) else 0 for sample in samples}
    if not lengths <= {2} and not lengths <= {3}:
        raise UserError(f"expected every sample of '{split}' as input and label, or also client", file=place)
    columns = tuple(map(list, zip(*samples, strict=True))) or ([], [])
    return [_array(sample, f"{split} inputs", place) for sample in columns[0]], *columns[1:]


def _array(value: Any, name: str, place: str) -> NDArray[Any]:
    """A value as an array: an array, a tensor, an image, or a list of them."""
    if hasattr(value, "detach"):
        value = of_tensor(value)
    elif hasattr(value, "toarray"):  # SciPy's sparse matrices
        value = value.toarray()
    if np.ma.is_masked(value):
        raise UserError(f"expected a value in every place of '{name}', found masked ones; fill them", file=place)
    try:
        values = np.asarray([_array(each, name, place) for each in value] if isinstance(value, list) else value)
        return values.astype(np.float32) if values.dtype.name == "bfloat16" else values
    except ValueError:  # of a list of arrays that differ in shape
        raise UserError(f"expected samples of one shape in '{name}'", file=place) from None
