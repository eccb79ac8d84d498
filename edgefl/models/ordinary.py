"""Ordinary PyTorch modules as models: from any ``nn.Module`` to blocks that are called with weights."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from traceback import walk_stack
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.errors import UserError, first_line, one_line
from edgefl.models.block_model import BlockModel
from edgefl.models.channels import layer_in
from edgefl.models.comparison import difference, drawn_inputs
from edgefl.models.fake import as_float32, draws_globally, numberless
from edgefl.models.layout import FROZEN, matching, tensors_of, variables
from edgefl.models.lora import Lora, add_adapters, without_adapters, without_base
from edgefl.models.mode import using
from edgefl.models.module_state import HOOKS, attributes_of, check_attributes, check_tensors, mark_remade, words_of
from edgefl.models.norm import is_refusal
from edgefl.models.pretrained import load
from edgefl.models.random_layers import RandomFunctions, backward_of
from edgefl.models.registry import ModelSpec
from edgefl.models.slimmable import correct
from edgefl.models.splitting import Split, split
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise a UserError for arguments that make a library's model read files or download."""
    for name in arguments:
        if any(word in name for word in ("pretrained", "weights", "checkpoint", "cache")):
            raise UserError(f"'{name}' would read or download values, found in the model's arguments", field="args")


class OrdinaryModel(ModelSpec):
    """A model that was not written for edgefl; its initial values are those that its constructor draws.

    It takes one tensor, a batch, and returns the outputs that the task needs, such as logits ``[batch, classes]``. Its
    random layers draw from a job's key, and running statistics are averaged.
    """

    blocks: tuple[str, ...] | None = Field(
        None, min_length=1, description="submodules that begin blocks, in order of calls; null: each child with weights"
    )
    trainable: tuple[str, ...] | None = Field(
        None, min_length=1, description="what is trained and sent, * for any text; null: all that is not frozen"
    )
    checkpointing: bool = Field(False, description="compute activations again in the backward pass, by its own switch")
    lora: Lora | None = Field(None, description="train low-rank adapters of these layers; needs the extra peft")

    @abstractmethod
    def module(self, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module, with values drawn from PyTorch's global generator."""

    def split(self, module: nn.Module, input_type: torch.dtype, sample_shape: tuple[int, ...]) -> Split:
        return split(module, self.blocks)

    def __hash__(self) -> int:
        """Of the JSON text, since arguments may be lists and mappings."""
        return hash(self.model_dump_json())

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        """The skeleton, for numbers or, if the module takes none, for tokens."""
        return self.build_for(sample_shape, classes, task=Classification(), tokens=None)

    def build_for(self, sample_shape: tuple[int, ...], outputs: int, *, task: Task, tokens: bool | None) -> BlockModel:
        classes, expected = outputs, task.output_shape(outputs, sample_shape)
        fresh = partial(self._drawn, sample_shape=sample_shape, classes=classes)
        module, twin, checked = fresh(0), fresh(0), not numberless()
        before = dict(attributes_of(twin))
        types = [torch.int64] if tokens else [torch.float32] if tokens is False else [torch.float32, torch.int64]
        facts = _called(twin, sample_shape, expected, types)
        samples = facts.pop("samples")
        inputs = drawn_inputs((samples, *sample_shape), facts["input_type"], facts["tokens"])
        if checked:
            check_attributes(twin, inputs, reshapes=facts["reshapes"])
        mark_remade(module, twin, before, checked=checked)
        if adapters := sorted(name for name in facts["unused"] if ".lora_" in name):
            layer = adapters[0].partition(".lora_")[0]
            raise UserError(f"the layer '{layer}' is not called, so its adapter is not trained", field="lora.targets")
        state = without_adapters(module.state_dict(keep_vars=True))

        def of(blocks: Mapping[str, nn.Module], whole: str | None) -> BlockModel:
            names = "module" if self.lora is None else "trained part"
            own: dict[str, Any] = {"module": module, "names": names, "fresh": fresh, "lora": self.lora, **facts}
            own |= {"sample_shape": sample_shape, "classes": classes, "align_block": max(1, len(blocks) - 2)}
            return BlockModel(blocks, whole=whole, **own)

        model = of(*self.split(module, facts["input_type"], sample_shape))
        if checked and model.depth > 1 and (place := difference(model.again(), inputs)) is not None:
            reason = f"its blocks would compute something else than the module, from '{place}' on"
            if self.blocks is not None:
                raise UserError(f"the model cannot be split here: {reason}", field="blocks")
            model = of({"model": module}, reason)
        model.copied = _writing_to_their_input(model.again(), samples)  # which keeps its own copies of constants
        model.pretrained = {} if self.weights is None or not checked else load(self.weights, model, state)
        return model

    def _drawn(self, seed: int, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module with the initial values of a seed, as float32; frozen parameters always have those of seed 0."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about choices of the module's author
            torch.manual_seed(seed)
            module = self.module(sample_shape, classes)
            if self.checkpointing:
                _checkpoint(module)
            if self.lora is not None:
                add_adapters(module, self.lora)
        for name, layer in module.named_modules():
            for unfit, problem in _UNFIT:
                if unfit(layer):
                    raise UserError(f"{words_of(module, name)} {problem}")
        module = as_float32(module)
        correct(module)
        if self.trainable is not None or self.lora is not None:
            _train_only(module, self.trainable or (), adapted=self.lora is not None)
        module.train()
        for name, layer in module.named_modules():
            if not layer.training:  # as the module's own train() has it
                layer.__dict__.setdefault(FROZEN, False)
            _keep_hooks(layer, words_of(module, name))
        return module


_UNFIT: Sequence[tuple[Callable[[Any], bool], str]] = (
    (
        lambda layer: isinstance(layer, LazyModuleMixin),
        "gets its size from its first input, so it has no initial values; write its size",
    ),
    (
        lambda layer: isinstance(layer, torch.jit.ScriptModule),
        "is compiled by TorchScript, so it cannot be called with other weights; use the module that was compiled",
    ),
    (
        lambda layer: isinstance(layer, _NormBase) and layer.momentum is None and layer.track_running_stats,
        "averages over all batches of its own (momentum=None), which has no mean over clients; give it a momentum",
    ),
)


def _checkpoint(module: nn.Module) -> None:
    switches = {"gradient_checkpointing_enable": [{"use_reentrant": False}], "set_grad_checkpointing": []}
    for name, options in switches.items():
        if hasattr(module, name):
            getattr(module, name)(*options)
            return
    message = f"expected a model with a switch for it, {' or '.join(switches)}, as models of transformers and timm have"
    raise UserError(message, field="checkpointing")


def _train_only(module: nn.Module, patterns: Iterable[str], *, adapted: bool) -> None:
    """Freeze all tensors but those that the patterns mean, and adapters; layers without any stay in evaluation."""
    tensors = {without_base(name) if adapted else name: each for name, each in tensors_of(module).items()}
    chosen = {id(tensors[name]) for name in matching(tensors, patterns, field="trainable")}
    chosen |= {id(each) for name, each in tensors.items() if ".lora_" in name}
    for parameter in module.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    for layer in module.modules():
        own = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
        if own and not any(id(each) in chosen for each in own):
            layer.__dict__[FROZEN] = True


def _keep_hooks(layer: nn.Module, words: str) -> None:
    """Keep the hooks of a layer's parameters, which a call replaces by other tensors."""
    for name, parameter in layer._parameters.items():
        if parameter is None:
            continue
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise UserError(
                f"{words} has a hook that is called when the gradient of its parameter '{name}' is accumulated; "
                "a method's local rule makes the step, so use parameter.register_hook for its gradient"
            )
        if parameter._backward_hooks:
            layer.__dict__.setdefault(HOOKS, {})[name] = tuple(parameter._backward_hooks.values())


def _called(
    module: nn.Module, sample_shape: tuple[int, ...], expected: tuple[int, ...], input_types: Sequence[torch.dtype]
) -> dict[str, Any]:
    """Call a module with inputs of the first type that it takes; the samples, and arguments of BlockModel."""
    errors: dict[torch.dtype, UserError] = {}
    for each, reshapes in product(input_types, (False, True)):
        for samples in (2, 8):
            if not numberless():
                check_tensors(module, drawn_inputs((samples, *sample_shape), each), reshapes=reshapes)
            try:
                return _checked(module, (samples, *sample_shape), expected, each, reshapes=reshapes)
            except UserError as error:
                if "view size" in str(errors.setdefault(each, error)):  # which a copy may mend
                    errors[each] = error
                if not is_refusal(error):
                    break
    reads_tokens = any(isinstance(layer, nn.Embedding) for layer in module.modules())
    raise errors[input_types[-1 if reads_tokens else 0]]


def _checked(
    module: nn.Module, given: tuple[int, ...], expected: tuple[int, ...], input_type: torch.dtype, *, reshapes: bool
) -> dict[str, Any]:
    """Call a module once in training with a batch of the shape ``given``, and check that it takes other weights."""
    taken: dict[str, Any] = {"input_type": input_type, "reshapes": reshapes}
    shapes: dict[str, Any] = {"sample_shape": given[1:], "classes": expected[-1], "align_block": 1}
    whole = BlockModel({"model": module}, module=module, recomputes=True, **shapes, **taken)
    weights = whole.zero_weights()
    leaves = {each.name: weights[each.block][each.name].detach().requires_grad_() for each in whole.layout.parameters}
    weights[0].update(leaves)
    shape = f"({', '.join(map(str, given))})"
    kind = "a batch" if input_type.is_floating_point else "tokens"
    functions, inputs = RandomFunctions(torch.tensor(0), recomputes=True), whole.inputs(given[0])
    watch = _Watch(module, inputs)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), functions, whole.held():
        warnings.simplefilter("ignore")
        try:
            with watch:
                with using(training=False), torch.no_grad():
                    whole.apply_blocks(weights, inputs)
                with using(training=True):
                    output = whole.apply_blocks(weights, inputs)
        except Exception as error:  # noqa: BLE001  (whatever the module's code raises)
            raise UserError(f"the model cannot be called with {kind} of shape {shape}: {first_line(error)}") from None
        _check_output(module, output, (given[0], *expected), shape)
        try:
            if output.requires_grad:
                backward_of(output.sum())
        except Exception as error:  # noqa: BLE001  (whatever the module's code raises)
            raise UserError(f"PyTorch cannot compute the model's gradient: {first_line(error)}") from None
    if watch.drawing is not None:
        raise UserError(
            f"{watch.drawing} draws random numbers in a way that a job's key cannot determine; use dropout, "
            "torch.bernoulli, torch.rand or torch.randn"
        )
    for place, parameter in module.named_parameters():
        path, _, name = place.rpartition(".")
        if parameter.grad is not None:
            raise UserError(
                f"{words_of(module, path)} keeps its parameter '{name}' in a "
                "second place, so it cannot be called with other weights"
            )
        if place in leaves and (gradient := leaves[place].grad) is not None and gradient.is_sparse:
            raise UserError(
                f"{words_of(module, path)} has a sparse gradient of its parameter '{name}'; leave out sparse=True, "
                "which gives the same numbers"
            )
    if not numberless():
        _check_memory(module)
    unused = frozenset(name for name, leaf in leaves.items() if leaf.grad is None)
    taken |= {"samples": given[0], "tokens": watch.tokens, "unused": unused}
    return {**taken, "random": functions.used, "recomputes": watch.recomputes}


def _check_memory(module: nn.Module) -> None:
    """Refuse two tensors that are trained or sent and share memory without being one."""
    found = ((each.data_ptr(), name, each) for name, each, _ in variables(module) if each.numel())
    tensors = sorted(found, key=lambda each: each[:2])
    for (begins, other, first), (place, name, tensor) in pairwise(tensors):
        reach = sum((count - 1) * step for count, step in zip(first.shape, first.stride(), strict=True))
        if place <= begins + first.element_size() * reach and first is not tensor:
            raise UserError(
                f"its tensors '{other}' and '{name}' share memory, so a change of one changes the other; let both "
                "places have the same tensor, or copies (clone)"
            )


def _check_output(module: nn.Module, output: object, expected: tuple[int, ...], shape: str) -> None:
    if isinstance(output, tuple) and getattr(module, "aux_logits", False):
        message = "the model returns logits of auxiliary classifiers too; leave them out with args: {aux_logits: false}"
        raise UserError(message)
    found = tuple(output.shape) if isinstance(output, Tensor) else one_line(output)
    if found != expected:
        raise UserError(
            f"expected outputs of shape {expected} for a batch of shape {shape}, found {found}; the number of "
            "classes is that of the data, or --classes"
        )


def _writing_to_their_input(model: BlockModel, samples: int) -> frozenset[str]:
    """The names of blocks that change their input, which another path may read again."""
    weights, tap, found = model.zero_weights(), model.inputs(samples), set()
    with torch.no_grad(), using(training=True, track=False), RandomFunctions(torch.tensor(0)):
        for index, name in enumerate(model.blocks):
            version = tap._version
            output = model.apply_blocks(weights, tap, start=index, stop=index + 1)
            if tap._version != version:
                found.add(name)
            tap = output
    return frozenset(found)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the operators of a module while it is called.

    ``drawing``: the layer that draws from PyTorch's global generator; ``tokens``: the least number of tokens of its
    input's embeddings; ``recomputes``: activations are checkpointed.
    """

    def __init__(self, module: nn.Module, inputs: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawing: str | None = None
        self.tokens: int | None = None
        self.recomputes = False
        self._module, self._memory = module, inputs.untyped_storage()._cdata

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags else None
        result = func(*args, **(kwargs or {}))
        self.recomputes = self.recomputes or any(
            frame.f_globals.get("__name__") == "torch.utils.checkpoint" for frame, _ in walk_stack(None)
        )
        drawn = before is not None and not torch.equal(before, torch.get_rng_state())
        if numberless():
            drawn = draws_globally(func, args, [*args, *(kwargs or {}).values()])
        if drawn and self.drawing is None:
            path = layer_in((frame for frame, _ in walk_stack(None)), self._module)
            self.drawing = words_of(self._module, path)
        if func is torch.ops.aten.embedding.default and args[1].untyped_storage()._cdata == self._memory:
            self.tokens = min(len(args[0]), self.tokens or len(args[0]))
        return result
