"""The models of Hugging Face's transformers, from a configuration."""

import inspect
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, JsonValue
from torch import Tensor, nn

from edgefl.errors import UserError, first_line, nearest, optional
from edgefl.files import read_json
from edgefl.input_file import InputFile, find_input
from edgefl.models.block_model import BlockModel
from edgefl.models.layered import layered
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.random_layers import UsedMasks
from edgefl.models.registry import MODELS
from edgefl.models.splitting import Split
from edgefl.tasks.base import Task
from edgefl.tasks.language_model import LanguageModel

Head = Literal["sequence_classification", "image_classification", "causal_lm", "next_token"]


_CLASSES: dict[Head, str] = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "image_classification": "AutoModelForImageClassification",
    "causal_lm": "AutoModelForCausalLM",
    "next_token": "AutoModelForCausalLM",
}
_CAUSAL = ("causal_lm", "next_token")

_OF_TRANSFORMERS = ("attn_implementation",)
"""Arguments that are no fields of a configuration."""


@MODELS.register("transformers")
class TransformersModel(OrdinaryModel):
    """A model of transformers by its type, such as gpt2 or bert; needs the extra ``transformers``.

    It is built from its configuration; nothing is downloaded, and no code of a checkpoint is executed. Attention is two
    products and a softmax, unless ``args`` choose another implementation.
    """

    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    transformers: str = Field(description="the model's type, such as gpt2, bert or vit")
    config: InputFile | None = Field(default=None, description="a config.json; null: the type's own configuration")
    args: dict[str, JsonValue] = Field(default={}, description="changes to the configuration, such as n_layer: 2")
    head: Head | None = Field(
        default=None,
        description="sequence_classification or image_classification: one result for each input; causal_lm: a token "
        "for each position; next_token: that of the last position only; null: by the task and the inputs",
    )

    def build_for(self, sample_shape: tuple[int, ...], outputs: int, *, task: Task, tokens: bool | None) -> BlockModel:
        if self.head is not None:
            model = super().build_for(sample_shape, outputs, task=task, tokens=tokens)
            if isinstance(model.module, Logits) and model.module.padding is not None:
                # No call shows it, since the embedding reads the tokens that were moved.
                model.tokens = model.module.tokens
            return model
        images: Head = "sequence_classification" if tokens or len(sample_shape) != 3 else "image_classification"
        head: Head = "causal_lm" if isinstance(task, LanguageModel) else images
        chosen = self.model_copy(update={"head": head})
        return chosen.build_for(sample_shape, outputs, task=task, tokens=tokens)

    def module(self, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
        transformers = optional("transformers", "transformers", field="transformers")
        from transformers.models.auto import modeling_auto

        assert self.head is not None
        last = self.head == "next_token"
        with _quiet():
            config = self._configuration(transformers.CONFIG_MAPPING, sample_shape, classes)
            text = config.get_text_config()
            own, tokens = getattr(text, "pad_token_id", None), getattr(text, "vocab_size", None)
            padding = self._padding(own, tokens)
            if own != padding:
                vars(text)["pad_token_id"] = None  # unchecked, since not all types allow it
            attention = self.args.get("attn_implementation", "eager")
            try:
                model = getattr(transformers, _CLASSES[self.head]).from_config(config, attn_implementation=attention)
            except Exception as error:  # noqa: BLE001  (whatever the library's checks raise)
                what, shape = f"the {self.head} of '{self.transformers}'", "×".join(map(str, sample_shape))
                message = f"{what} cannot be built for inputs of {shape}: {first_line(error)[:200]}"
                raise UserError(message) from None
        if padding is not None and "attention_mask" in inspect.signature(model.forward).parameters:
            return Logits(model, last=last, masked=True, padding=padding, tokens=tokens)
        # Inputs have no padding: the last position is that of the last token, and all tokens are trained.
        model.config.pad_token_id = -1
        first = _first_position(model, own)
        for layer in model.modules():
            if isinstance(layer, nn.Embedding):
                layer.padding_idx = None
        causal = self.transformers in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        both = self.transformers in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        return Logits(model, last=last, masked=self.head in _CAUSAL or causal > both, first=first)

    def split(self, module: nn.Module, input_type: torch.dtype, sample_shape: tuple[int, ...]) -> Split:
        """The embedding, each layer and the head, if the layers can be called one by one."""
        if self.blocks is not None:
            raise UserError("a model of transformers is split at its layers; leave this out", field="blocks")
        if isinstance(module, Logits) and module.padding is not None:
            reason = f"its layers depend on which tokens are padding, here {module.padding}"
            return Split({"model": module}, f"{reason}; if no text is padded, write args: {{pad_token_id: null}}")

        def zeros(batch: int, device: torch.device) -> Tensor:
            return torch.zeros(batch, *sample_shape, dtype=input_type, device=device)

        return layered(module, zeros) or Split({"model": module}, "its layers cannot be called one by one")

    def _configuration(self, types: Any, sample_shape: tuple[int, ...], classes: int) -> Any:
        if self.transformers not in types:
            hint = nearest(self.transformers, list(types.keys()))
            hint = hint if hint.startswith("did") else "see transformers.CONFIG_MAPPING"
            raise UserError(f"transformers has no model type '{self.transformers}'; {hint}", field="transformers")
        own = types[self.transformers]
        plain = own()
        for name in self.args:
            if name not in _OF_TRANSFORMERS and (name.startswith("_") or not hasattr(plain, name)):
                known = [each for each in plain.to_dict() if not each.startswith("_")]
                message = f"the configuration of '{self.transformers}' has no '{name}'; {nearest(name, known)}"
                raise UserError(message, field="args")
        options: dict[str, Any] = {"use_cache": False, "vocab_size" if self.head in _CAUSAL else "num_labels": classes}
        if self.head == "image_classification" and len(sample_shape) == 3:
            channels, height, width = sample_shape
            options |= {"num_channels": channels, "image_size": height if height == width else [height, width]}
        given = {name: value for name, value in self.args.items() if name not in _OF_TRANSFORMERS}
        options |= {name: value for name, value in given.items() if (name, value) != ("pad_token_id", None)}
        try:
            return own.from_dict({**self._file(), **options})
        except Exception as error:  # noqa: BLE001  (whatever the library's checks raise)
            reason = first_line(error.__cause__ or error)[:200]
            raise UserError(f"not a configuration of '{self.transformers}': {reason}", field="args") from None

    def _padding(self, own: int | None, tokens: int | None) -> int | None:
        """The token that fills texts up: the configuration's, ``own``, if it is one of the tokens."""
        if own is None or self.args.get("pad_token_id", own) is None or self.head == "image_classification":
            return None
        if isinstance(own, int) and 0 <= own < (tokens or math.inf):
            return own
        if "pad_token_id" in self.args:
            many = "" if tokens is None else f", from 0 to {tokens - 1}"
            raise UserError(f"expected as pad_token_id null or a token of the model{many}, found {own}", field="args")
        return None

    def _file(self) -> dict[str, Any]:
        if self.config is None:
            return {}
        path = find_input(self.config)
        found = read_json(path)
        if not isinstance(found, dict):
            raise UserError("expected a mapping, as transformers writes it", file=str(path))
        if found.get("model_type", self.transformers) != self.transformers:
            message = f"expected the configuration of '{self.transformers}', found that of '{found['model_type']}'"
            raise UserError(message, file=str(path))
        return found


class Logits(nn.Module):
    """A model of transformers that takes one tensor and returns one; its tensors keep their names.

    Args:
        last: True if only the logits of the last position, or of the last token that is no padding, are returned.
        masked: True if it gets a mask without padding; without one, causal models look for several texts in a row.
        first: the number of the first position, for models that number positions by the tokens that are no padding.
        padding: the token that fills texts up, at their end or at their beginning; the model gets a mask of the others.
        tokens: the number of tokens.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        last: bool,
        masked: bool,
        first: int | None = None,
        padding: int | None = None,
        tokens: int | None = None,
    ) -> None:
        super().__init__()
        self._model = (model,)  # no submodule, so that names have no prefix
        # The same mappings: a layer that is replaced here is replaced there.
        self._parameters, self._buffers, self._modules = model._parameters, model._buffers, model._modules
        self._non_persistent_buffers_set = model._non_persistent_buffers_set
        self._last, self._masked, self._first = last, masked, first
        self.padding, self.tokens = padding, tokens

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits ``[batch, …, classes]`` of a batch of tokens or images."""
        if self.padding is not None:
            return self._of_padded(inputs, self.padding)
        options = {"attention_mask": torch.ones_like(inputs)} if self._masked else {}
        if self._first is not None:
            positions = torch.arange(self._first, self._first + inputs.shape[1], device=inputs.device)
            options["position_ids"] = positions.expand(inputs.shape)
        logits = self._called(inputs, **options)
        return logits[:, -1] if self._last else logits

    def gradient_checkpointing_enable(self, options: dict[str, Any]) -> None:
        self._model[0].gradient_checkpointing_enable(options)  # type: ignore[operator]

    def _of_padded(self, inputs: Tensor, padding: int) -> Tensor:
        """The logits of texts moved to their beginning, so that positions do not depend on padding before them."""
        length = inputs.shape[1]
        places = torch.arange(length, device=inputs.device)
        before = ((inputs != padding).cumsum(1) == 0).sum(1, keepdim=True)
        tokens = inputs.gather(1, (places + before) % length)
        real = tokens != padding
        logits = self._called(tokens, attention_mask=real.long())
        if self._last:
            return logits.take_along_dim((places * real).amax(1)[:, None, None], 1)[:, 0]
        return logits if logits.dim() == 2 else logits.take_along_dim(((places - before) % length)[:, :, None], 1)

    def _called(self, inputs: Tensor, **options: Tensor) -> Tensor:
        with UsedMasks(padded=self.padding is not None):
            logits: Tensor = self._model[0](inputs, **options).logits
        return logits


def padding_of(model: BlockModel) -> int | None:
    """The token that fills texts up, if the model masks it."""
    return model.module.padding if isinstance(model.module, Logits) else None


def _first_position(model: nn.Module, padding: int | None) -> int | None:
    """The number of the first position, if positions are counted from the padding token, as in roberta."""
    for layer in model.modules():
        if isinstance(getattr(layer, "position_embeddings", None), nn.Embedding) and hasattr(layer, "padding_idx"):
            own: Any = padding if layer.padding_idx is None else layer.padding_idx
            return None if own is None else int(own) + 1
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's remarks about tokens that only its tokenizers use."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
