"""The image models of timm (PyTorch Image Models)."""

import difflib
from typing import Any, ClassVar

from pydantic import Field
from torch import nn

from edgefl.errors import UserError, optional
from edgefl.models.ordinary import OrdinaryModel, check_arguments
from edgefl.models.registry import MODELS


@MODELS.register("timm")
class TimmModel(OrdinaryModel):
    """An image model of timm by its name, without pretrained weights; needs ``pip install 'edgefl[timm]'``.

    A model that takes images of one size is built for the size of the data's images.
    """

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
