"""The classification models of torchvision."""

from typing import Any, ClassVar

from pydantic import Field
from torch import nn

from edgefl.errors import UserError, nearest
from edgefl.models.ordinary import OrdinaryModel, check_arguments
from edgefl.models.registry import MODELS


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
