"""The registry of models, and functions to build and initialise one."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from edgefl.errors import UserError, WrongAnswer, one_line
from edgefl.input_file import InputFile
from edgefl.models.block_model import BlockModel
from edgefl.models.fake import WithoutNumbers, keep_shapes
from edgefl.models.layout import matching, tensors_of
from edgefl.models.norm import Norm, NormKind, norm_of
from edgefl.models.pretrained import Weights, load, name_of
from edgefl.models.slimmable import Conv2d
from edgefl.options import Component
from edgefl.randomness import integer_seed
from edgefl.registry import Registry, class_of
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification
from edgefl.torch_settings import neutral_torch


class ModelSpec(Component):
    """A model that a scenario can name; its fields are the options."""

    buffers: Literal["averaged", "local"] = Field("averaged", description="local: each client keeps its own")
    local: tuple[str, ...] = Field((), description="submodules or tensors that clients keep; * is any text (FedBN)")
    weights: InputFile | Weights | None = Field(None, description="pretrained weights, the first model; null: random")

    @abstractmethod
    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        """The skeleton for inputs ``[batch, *sample_shape]``, whose values are not used; UserError if there is none."""

    def build_for(self, sample_shape: tuple[int, ...], outputs: int, *, task: Task, tokens: bool | None) -> BlockModel:
        """The skeleton for a task that needs so many outputs; by default that of :meth:`build`, with as many classes.

        ``tokens``: True if inputs are integers, ``None`` if unknown. Raises a UserError if the task does not fit.
        """
        return self.build(sample_shape, outputs)


class NormedSpec(ModelSpec):
    """A model with normalisation after each convolution."""

    norm: NormKind = Field(default="group", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, description="groups of group norm")

    def norms(self, least: int) -> Norm:
        """The normalisation of this model, whose numbers of channels are multiples of ``least``."""
        return norm_of(self.norm, self.groups, least=least)


MODELS: Registry[type[ModelSpec]] = Registry(
    "model", package="edgefl.models.zoo", group="edgefl.models", check=class_of(ModelSpec)
)
"""Every model by name; ``edgefl.models`` entry points add to it."""


@neutral_torch()
def build_model(
    spec: ModelSpec,
    sample_shape: tuple[int, ...],
    classes: int,
    task: Task | None = None,
    *,
    tokens: bool | None = None,
    numbers: bool = True,
) -> BlockModel:
    """The skeleton of a model on the CPU, with the initial weights of seed 0.

    ``classes`` is the number of classes, or of outputs that the task (by default classification) needs. ``tokens`` is
    True if inputs are integers, such as the numbers of characters, and ``None`` if this is unknown. Without
    ``numbers``, large tensors have shapes only: to count a step, of any size. Then no file of weights is read, and an
    ordinary module is not compared with its blocks. A model whose constructor needs its numbers has them.

    Raises:
        UserError: the model cannot take inputs of that shape or return outputs for the task, is none that can be
            trained, or its plug-in raised an error.

    >>> model = build_model(MODELS["cnn"](), (1, 28, 28), 10)
    >>> model.depth, model.layout.block_names
    (4, ('conv1', 'conv2', 'fc1', 'fc2'))
    """
    if not numbers and (shapes := _shapes(spec, sample_shape, classes, task, tokens)) is not None:
        return shapes
    with MODELS.blaming(type(spec)):
        task = task or Classification()
        model = checked_model(spec.build_for(sample_shape, classes, task=task, tokens=tokens))
        model.task = task
        _check_outputs(model)
        if spec.weights is not None and model.pretrained is None:
            model.pretrained = load(spec.weights, model)
        model.keep_local(_local_names(spec, model))
        vector = initial_vector(model, 0)
    weights = model.layout.weights(*model.layout.split(vector))
    with torch.no_grad():
        for own, drawn in zip(model.own, weights, strict=True):
            for name, tensor in own.items():
                tensor.copy_(drawn[name])
    return model


def _shapes(
    spec: ModelSpec, sample_shape: tuple[int, ...], classes: int, task: Task | None, tokens: bool | None
) -> BlockModel | None:
    """The skeleton without numbers; ``None`` if that is impossible, or if an error may be one of missing numbers."""
    try:
        with WithoutNumbers():
            model = spec.build_for(sample_shape, classes, task=task or Classification(), tokens=tokens)
            model.task = task or Classification()
            model.keep_local(_local_names(spec, model))
            keep_shapes(model)
            model.numbers = False
        model = model.again()  # which finds the places of its new tensors
        _check_outputs(model)
    except Exception as error:
        if isinstance(error, UserError) and error.field is not None:
            raise  # about an option
        return None
    return model


def _check_outputs(model: BlockModel) -> None:
    if isinstance(model.task, Classification):
        return
    expected, found = model.task.output_shape(model.classes, model.sample_shape), tuple(model.tap_shapes[-1])
    if found != expected:
        raise UserError(
            f"task '{model.task.kind}' needs a model that returns {list(expected)} for each sample, found {list(found)}"
        )


def _local_names(spec: ModelSpec, model: BlockModel) -> set[str]:
    """The names ``block.tensor`` of the tensors that stay local."""
    layout = model.layout
    names = {name_of(model, each): each for each in layout.entries}
    local = [names[name] for name in matching(names, spec.local, field="local", what="tensors that are trained")]
    if spec.buffers == "local":
        if not layout.buffers:
            raise UserError("the model has no running statistics to keep local", field="buffers")
        local += layout.buffers
    return {layout.name_of(each) for each in local}


def checked_model(answer: object) -> BlockModel:
    """Check what ``build`` or an objective's ``adapt`` returned; WrongAnswer if it is no float32 model with data."""
    if not isinstance(answer, BlockModel):
        raise WrongAnswer(f"expected a BlockModel, found {one_line(answer)}")
    if not answer.layout.parameter_count:
        raise WrongAnswer(f"expected a model with parameters, found {answer.depth} blocks without any")
    trained = {id(each) for block in answer.own for each in block.values()}
    of_parameters = {name for name, _ in answer.named_parameters()}
    for name, tensor in [*answer.named_parameters(), *answer.named_buffers()]:
        fractions = name in of_parameters or tensor.is_floating_point()
        wrong = id(tensor) in trained and fractions and tensor.dtype != torch.float32
        if wrong or (answer.numbers and tensor.is_meta):
            kind = "parameter" if name in of_parameters else "buffer"
            found = f"{tensor.dtype} on {tensor.device}".removeprefix("torch.")
            raise WrongAnswer(
                f"expected float32 on cpu, found {found} in the {kind} '{name.partition('.')[2]}'; models are trained "
                "as float32, and training.engine.precision sets the precision of a step's products"
            )
    return answer


def initial_vector(model: BlockModel, seed: int) -> Tensor:
    """The first server model of a seed, parameters and buffers ``[layout.size]``, the same for every method.

    PyTorch's defaults (Kaiming with a = √5), unless a layer specifies others, or the module draws its values itself
    (:attr:`BlockModel.fresh`), from one generator; pretrained values replace what is drawn.
    """
    number = integer_seed(seed, "initial model")
    generator = torch.Generator().manual_seed(number)
    drawn = {} if model.fresh is None else tensors_of(model.fresh(number))
    blocks: list[dict[str, Tensor]] = []
    for index, (name, block) in enumerate(model.blocks.items()):
        # Separate tensors: a generator fills a view in memory order, and draws must not depend on that order.
        tensors = {each.name: torch.zeros(each.shape) for each in model.layout.entries if each.block == index}
        if drawn and name not in model.new:
            tensors = {place: drawn[place] for place in tensors}
        else:
            initialise(block, tensors, generator)
        blocks.append({**tensors, **(model.pretrained or {}).get(name, {})})
    return model.layout.flatten(blocks)


def image_shape(model: str, sample_shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Shape as (channels, height, width), or UserError if images are not ``least`` pixels high and wide."""
    if len(sample_shape) != 3 or min(sample_shape[1:]) < least:
        shape = "×".join(map(str, sample_shape))
        message = f"model '{model}' takes images (channels × height × width) of {least}×{least} or more, found {shape}"
        raise UserError(message)
    channels, height, width = sample_shape
    return channels, height, width


def initialise(block: nn.Module, tensors: Mapping[str, Tensor], generator: torch.Generator) -> None:
    """Fill a block's tensors: PyTorch's defaults, N(0, 1) for embeddings; others need a method ``initialise``."""
    with torch.no_grad():
        for path, module in block.named_modules():
            prefix = f"{path}." if path else ""
            names = [name for name, _ in module.named_parameters(recurse=False)]
            names += [name for name, _ in module.named_buffers(recurse=False)]
            own = {name: tensors[prefix + name] for name in names if prefix + name in tensors}
            if own:
                _fill(module, own, generator)


def _fill(module: nn.Module, own: Mapping[str, Tensor], generator: torch.Generator) -> None:
    draw: Any = getattr(module, "initialise", None)
    if draw is not None:  # a layer that draws its own tensors, as those of plug-ins may
        draw(own, generator)
    elif isinstance(module, Conv2d) and module.fan_out:
        nn.init.kaiming_normal_(own["weight"], mode="fan_out", nonlinearity="relu", generator=generator)
        if "bias" in own:
            own["bias"].zero_()
    elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        nn.init.kaiming_uniform_(own["weight"], a=math.sqrt(5), generator=generator)
        if "bias" in own:
            bound = 1 / math.sqrt(own["weight"][0].numel())
            own["bias"].uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.Embedding):
        own["weight"].normal_(generator=generator)
    elif "weight" not in own or own["weight"].ndim == 1:
        for name, tensor in own.items():
            tensor.fill_(1.0 if name in ("weight", "running_var") else 0.0)
    else:
        raise TypeError(f"{type(module).__name__} has no known initial values; give it initialise(tensors, generator)")
