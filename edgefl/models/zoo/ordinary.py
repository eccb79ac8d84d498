"""Ordinary modules: the classification models of torchvision, those of timm, and those of the user's Python files."""

import difflib
from typing import Any, ClassVar

from pydantic import Field, JsonValue
from torch import nn

from edgefl.errors import UserError, in_words, nearest, one_line, optional
from edgefl.input_file import InputCode
from edgefl.models.ordinary import OrdinaryModel, check_arguments
from edgefl.models.registry import MODELS
from edgefl.user_code import UserCode


@MODELS.register("torchvision")
class TorchvisionModel(OrdinaryModel):
    """An image model of torchvision by its name, without pretrained weights; it takes images of three channels."""

    packages: ClassVar[tuple[str, ...]] = ("torchvision",)
    torchvision: str = Field(description="the model's name, such as mobilenet_v3_small")
    args: dict[str, Any] = Field(default_factory=dict, description="arguments of the model")

    def module(self, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
        from torchvision import models

        check_arguments(self.args)
        if len(sample_shape) != 3 or sample_shape[0] != 3:
            shape = "×".join(map(str, sample_shape))
            raise UserError(
                f"torchvision's models take images of three channels, found inputs of {shape}; use a model of timm, "
                "which is built for the data's channels, or colour images (colours: 3 of image_folder, huggingface)",
                field="torchvision",
            )
        names = models.list_models(module=models)
        if self.torchvision not in names:
            meant = nearest(self.torchvision, names)
            raise UserError(f"torchvision has no model '{self.torchvision}'; {meant}", field="torchvision")
        try:
            module: nn.Module = models.get_model(self.torchvision, weights=None, num_classes=classes, **self.args)
        except (TypeError, ValueError) as error:
            raise UserError(f"torchvision's {self.torchvision} cannot be built: {error}", field="args") from None
        return module


@MODELS.register("timm")
class TimmModel(OrdinaryModel):
    """An untrained image model of timm by its name, for the size of the images; needs the extra ``timm``."""

    packages: ClassVar[tuple[str, ...]] = ("timm",)
    timm: str = Field(description="the model's name, such as vit_tiny_patch16_224")
    args: dict[str, Any] = Field(default_factory=dict, description="arguments of timm.create_model")

    def module(self, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
        timm = optional("timm", "timm", field="timm")
        check_arguments(self.args)
        if len(sample_shape) != 3:
            raise UserError(f"timm's models take images, found inputs of shape {sample_shape}", field="timm")
        channels, *size = sample_shape
        name = self.timm.partition(".")[0]
        if not timm.is_model(name):
            close = difflib.get_close_matches(name, timm.list_models(), n=1)
            meant = f"; did you mean '{close[0]}'?" if close else ", see timm.list_models()"
            raise UserError(f"timm {timm.__version__} has no model '{self.timm}'{meant}", field="timm")
        options: dict[str, Any] = {"in_chans": channels, "num_classes": classes}
        known = timm.get_pretrained_cfg(self.timm)
        if known is not None and known.fixed_input_size and tuple(known.input_size[1:]) != tuple(size):
            options["img_size"] = tuple(size)
        try:
            module: nn.Module = timm.create_model(self.timm, pretrained=False, **(options | self.args))
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise UserError(f"timm's {self.timm} cannot be built: {error}", field="args") from None
        return module


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
