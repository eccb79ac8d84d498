"""A model from a Python file of the user."""

from pydantic import Field, JsonValue
from torch import nn

from edgefl.errors import UserError, in_words, one_line
from edgefl.input_file import InputCode
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import MODELS
from edgefl.user_code import UserCode


@MODELS.register("python")
class PythonModel(OrdinaryModel):
    """A class, or a function that returns a module, in a Python file: ``{python: net.py:Net, args: {width: 32}}``."""

    python: InputCode = Field(description="the class or function, FILE.py:NAME")
    args: dict[str, JsonValue] = Field(default={}, description="keyword arguments of the class or function")

    def module(self, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
        code = UserCode.of(self.python)
        make = code.load()
        try:
            module = make(**self.args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise UserError(f"'{code.name}' raised an error: {in_words(error)}", file=str(code.file)) from error
        if not isinstance(module, nn.Module):
            found = one_line(module)
            raise UserError(f"expected '{code.name}' to make an nn.Module, found {found}", file=str(code.file))
        return module
