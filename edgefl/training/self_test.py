"""One step and one evaluation of an ordinary module, by PyTorch alone and by edgefl, on real numbers."""

from typing import Any

import torch
from torch import Tensor

from edgefl.errors import UserError, first_line, in_words
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.methods.parts.optimizers import Optimizer
from edgefl.models.block_model import BlockModel
from edgefl.models.comparison import close, drawn_inputs, noise, perturbed
from edgefl.models.layout import matching, switch, tensors_of
from edgefl.models.mode import using
from edgefl.models.pretrained import state_of
from edgefl.models.random_layers import KEY, RandomFunctions, backward_of
from edgefl.torch_settings import neutral_torch
from edgefl.training.engines.sequential import TRAINING
from edgefl.training.evaluation import PLAIN

SAMPLES = 8
_ATTEMPTS = 3
"""Two computations that round differently may fall on different sides of a kink, such as that of a ReLU. In a deep
network one of hundreds of tensors does in each attempt, another each time; a tensor that is wrong differs in all."""

_OPTIMIZERS = {name.lower(): getattr(torch.optim, name) for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop")}

_Found = dict[str, Tensor]
"""Tensors by what they are, in words."""


@neutral_torch()
def check_module(model: BlockModel, local: LocalOptions) -> None:
    """Compare a local step and an evaluation of an ordinary module with those of plain PyTorch.

    Both have the same perturbed weights, batch and random numbers. PyTorch's step is ``train()``, ``backward()`` and
    the step of ``torch.optim``, with weight decay. The loss, gradients, stepped parameters, buffers, and the outputs in
    evaluation are compared.

    Raises:
        UserError: they differ, with the first tensor that does, or PyTorch cannot make the step.
    """
    if model.fresh is None:
        return
    optimizer = local.optimizer
    if optimizer.kind not in _OPTIMIZERS:  # the user's own
        local = LocalOptions(weight_decay=local.weight_decay, clip_norm=local.clip_norm)
    elif isinstance(optimizer, Optimizer):  # which would make much of a gradient that is only rounding
        local = local.model_copy(update={"optimizer": optimizer.model_copy(update={"eps": 0.01})})
    local = local.model_copy(update={"weight_decay": local.weight_decay or 0.1, "lr": 0.1, "lr_decay": 1.0})
    alike: dict[str, bool] = {}
    for attempt in range(_ATTEMPTS):
        vector, batch = perturbed(model, attempt), _batch(model, attempt)
        # What a change by rounding does to PyTorch's own result is no difference.
        rounded = vector * (1 + 1e-6 * noise(len(vector), attempt))
        expected, near = (_by_pytorch(model, local, each, batch) for each in (vector, rounded))
        found = _by_edgefl(model, local, vector, batch)
        alike = {name: alike.get(name) or close(found[name], each, near[name]) for name, each in expected.items()}
        if all(alike.values()):
            return
    raise UserError(
        f"edgefl's step of this model is not PyTorch's: {min(alike, key=alike.__getitem__)} differs, so it is not "
        "trained; write what is unusual there with parameters, buffers and submodules of the module"
    )


def refusal(model: BlockModel) -> str | None:
    """Why the class of an ordinary module does not load the state dict of a trained model; ``None`` if it does."""
    if model.fresh is None or model.names != "module":
        return None
    try:
        model.fresh(0).load_state_dict(state_of(model, perturbed(model, 0)))
    except Exception as error:  # noqa: BLE001  (whatever the module's code raises)
        return in_words(error)
    return None


def _batch(model: BlockModel, seed: int) -> Batch:
    generator, task, shape = torch.Generator().manual_seed(seed), model.task, (SAMPLES, *model.sample_shape)
    inputs = drawn_inputs(shape, model.input_type, model.tokens, generator)
    several = 2 if task.label_type.is_floating_point else model.classes
    of_labels = (SAMPLES, *task.label_shape(model.classes, model.sample_shape))
    labels = torch.randint(several, of_labels, generator=generator)
    return Batch(inputs, labels.to(task.label_type))


def _by_pytorch(model: BlockModel, local: LocalOptions, vector: Tensor, batch: Batch) -> _Found:
    assert model.fresh is not None
    assert model.module is not None
    layout, weights = model.layout, model.layout.weights(*model.layout.split(vector))
    evaluated, module = model.fresh(0), model.fresh(0)
    for made in (evaluated, module):
        tensors = tensors_of(made)
        with torch.no_grad():
            for name, own in tensors_of(model.module).items():  # constants, which may be those of a file
                tensors[name].copy_(own)
            for entry in layout.entries:
                tensors[entry.name].copy_(weights[entry.block][entry.name])
    evaluated.eval()
    with torch.no_grad(), RandomFunctions(torch.tensor(2)):
        found = {"its output in evaluation": evaluated(batch.inputs.clone())}
    switch(module, training=True)
    without = matching(map(layout.name_of, layout.parameters), local.no_decay, field="local.no_decay")
    groups: list[dict[str, Any]] = [{"params": []}, {"params": [], "weight_decay": 0.0}]
    for each in layout.parameters:
        groups[layout.name_of(each) in without]["params"].append(tensors[each.name])
    given = {"momentum": local.momentum, "nesterov": local.nesterov}
    if local.optimizer.kind != "sgd":
        given = local.optimizer.model_dump(exclude={"kind", "state"})
    given |= {"lr": local.lr_at(0), "weight_decay": local.weight_decay}
    optimizer = _OPTIMIZERS[local.optimizer.kind]([group for group in groups if group["params"]], **given)
    try:
        with RandomFunctions(torch.tensor(1), recomputes=model.recomputes):
            loss = model.task.mean_loss(module(batch.inputs.clone()), batch.labels)
            backward_of(loss)
        for each in layout.parameters:
            gradient = tensors[each.name].grad
            found[f"the gradient of '{each.name}'"] = torch.zeros(each.shape) if gradient is None else gradient.clone()
        if local.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), local.clip_norm)
        optimizer.step()
    except Exception as error:  # noqa: BLE001  (whatever the module's code raises)
        raise UserError(f"PyTorch cannot make a training step of this model: {first_line(error)}") from None
    moved = {each.name: tensors[each.name].detach() - weights[each.block][each.name] for each in layout.parameters}
    found |= {f"the step of '{name}'": each for name, each in moved.items()}
    tensors = tensors_of(module)  # a module may put other ones in their places
    found |= {f"the buffer '{each.name}' after a step": tensors[each.name] for each in layout.buffers}
    return {**found, "its loss": loss}


def _by_edgefl(model: BlockModel, local: LocalOptions, vector: Tensor, batch: Batch) -> _Found:
    layout, key = model.layout, {KEY: torch.tensor(1)}
    with torch.no_grad(), using(**PLAIN), RandomFunctions(torch.tensor(2)):
        weights = layout.frozen(*layout.split(vector.clone()))
        found = {"its output in evaluation": model.apply_blocks(weights, batch.inputs.clone())}
    context = Context(model=model, frozen={}, vectors={}, client={}, alpha=model.depth, draws=key)
    for what, sign, options in (("gradient", -1, LocalOptions(lr=1.0)), ("step", 1, local)):
        parameters, buffers = layout.split(vector.clone())
        rule, copied = options.optimizer.rule(), Batch(batch.inputs.clone(), batch.labels)
        memory = rule.begin(parameters, rule.first(parameters), options, 1)
        given = parameters.clone(), buffers, copied, context, memory, options.on(layout), options.lr_at(0)
        with using(**TRAINING):
            after, loss = local_step(CrossEntropy(), rule, *given)
        moved = layout.weights(sign * (after - parameters), buffers)
        found |= {f"the {what} of '{each.name}'": moved[each.block][each.name] for each in layout.parameters}
        found |= {f"the buffer '{each.name}' after a step": moved[each.block][each.name] for each in layout.buffers}
    return {**found, "its loss": loss.total}
