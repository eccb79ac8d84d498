"""``edgefl cost``: measure what a method costs a client, on the graph that it executes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefl.cli import arguments
from edgefl.cli.arguments import Json, option
from edgefl.cli.printing import print_table, quiet, say, say_json
from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.cost import CostModel
    from edgefl.cost.method_cost import MethodCost
    from edgefl.methods.recipe import Method
    from edgefl.planning.on_devices import OnDevice


def cost(  # noqa: PLR0917  (one parameter for each option; typer passes them by name)
    model: str = option(..., "Model, as in a scenario: cnn, or '{timm: resnet18}'.", "--model", "-m"),
    method: str | None = option(None, "Method.", "--method", "-x"),
    changes: list[str] | None = arguments.changes(
        "Set by path in a scenario: model.stem=imagenet, methods.0.mu=0.1, training.local.momentum=0.9"
    ),
    batch: int = option(1, "Images in a batch.", min=1),
    alpha: int | None = option(None, "Number of last blocks that the client receives (FedBR).", min=1, unset="all"),
    classes: int = option(10, "Number of classes, or of outputs.", min=1),
    task: str = option("classification", "What the model is trained for, such as regression."),
    shape: str = option("3x32x32", "Channels, height and width of an image.", metavar="CxHxW"),
    images: int = option(500, "A client's training images, for --on.", min=1),
    on: str | None = option(
        None, "Seconds, memory and joules of a round on these devices.", "--on", metavar="DEVICE,…"
    ),
    all_methods: bool = option(False, "Compare all methods.", "--all"),
    as_json: Json = False,
) -> None:
    """Measure what one local step and one round of a method cost a client.

    One real local step (forward, backward, update) runs on tensors without data. MACs count the forward pass; layer
    MACs are what papers call FLOPs. Work is per batch; memory is the peak of the step.
    """
    from edgefl.cost import CostModel
    from edgefl.models.registry import build_model
    from edgefl.scenario.named_step import read_shape, read_step, read_task

    if on is not None and method is None:
        method = "fedavg"
    if (method is None) == (not all_methods):
        raise UserError("expected --method NAME, --on DEVICE,… or --all")
    if on is not None and alpha is not None:
        raise UserError("seconds of devices are for the whole model; leave out --on or --alpha")
    spec, methods = read_step(model, method, changes or [])
    with quiet(as_json):
        sample = read_shape(shape, field="--shape")
        costs = CostModel(build_model(spec, sample, classes, read_task(task), numbers=False))
        devices = [] if on is None else _on_devices(costs, methods[0], batch, images, on)
        try:
            rows = [row for each in methods for row in _rows(costs, each, batch, alpha, every=all_methods)]
        except UserError as error:
            raise (UserError(error.message, file=f"--alpha {alpha}") if error.field == "alpha" else error) from None
    if on is not None:
        _show_devices(methods[0].label, batch, images, devices, as_json=as_json)
    elif as_json:
        from edgefl.fleet import step_signature  # under which a device profile lists a step's measured time

        data = [
            row if isinstance(row, dict) else {**row.as_dict(), "signature": step_signature(row.step.operators)}
            for row in rows
        ]
        levels = {"levels": data} if "share" in data[0] else {}
        say_json({"model": model, "methods": data} if all_methods else {"model": model, **data[0], **levels})
    else:
        from edgefl.methods.build import build_method

        fedavg = costs.cost(build_method("fedavg", methods[0].local), costs.model.depth, batch)
        _print(rows, fedavg.training_flops, f"Batch {batch} of {shape}, {classes} classes.")


def _on_devices(costs: CostModel, method: Method, batch: int, images: int, names: str) -> list[OnDevice]:
    from dataclasses import replace

    from edgefl.fleet import load_profile
    from edgefl.planning.on_devices import on_devices

    method = replace(method, local=method.local.model_copy(update={"batch": batch}))
    return on_devices(costs, method, images, [load_profile(name.strip()) for name in names.split(",")])


def _show_devices(label: str, batch: int, images: int, rows: list[OnDevice], *, as_json: bool) -> None:
    from edgefl.cli.printing import show
    from edgefl.report.table import Column, Table, figures, words

    if as_json:
        say_json({"method": label, "images": images, "batch": batch, "devices": [row.as_dict() for row in rows]})
        return
    columns = [
        words("device", [row.device for row in rows]),
        Column("fits", ["yes" if row.fits else "no" for row in rows]),
        figures("needs", [row.peak_memory_bytes for row in rows], "bytes"),
        figures("has", [row.training_memory_bytes.nominal for row in rows], "bytes"),
        figures("time", [row.compute_seconds.nominal for row in rows], "seconds"),
        figures("at least", [row.compute_seconds.low for row in rows], "seconds"),
        figures("at most", [row.compute_seconds.high for row in rows], "seconds"),
        figures("energy", [row.joules.nominal for row in rows], "joules"),
    ]
    notes = [
        f"A round of {label} on {images} images in batches of {batch}: {rows[0].steps} steps, without transfers; "
        "needs, has: memory for training."
    ]
    notes += [f"Seconds of {row.device} ({row.stack}): {row.evidence}." for row in rows]
    show(Table(columns, notes, []))


def _rows(
    costs: CostModel, method: Method, batch: int, alpha: int | None, *, every: bool
) -> list[MethodCost | dict[str, Any]]:
    """A method's costs for each capacity level, with --all also for each number of blocks that it may send.

    With --all, a method that is refused is listed with the reason.
    """
    from edgefl.cost.method_cost import method_cost

    levels = range(1 if method.submodels is None else len(method.submodels.levels))
    alphas: list[int | None] = [alpha]
    if every:
        blocks = costs.model.depth
        alphas = [None] if not method.payload.sends_blocks else [alpha] if alpha else list(range(1, blocks + 1))
    try:
        return [method_cost(costs, method, batch, each, level) for each in alphas for level in levels]
    except UserError as error:
        if not every:
            raise
        return [{"method": method.label, "refused": str(error)}]


def _print(rows: list[MethodCost | dict[str, Any]], fedavg_flops: float, images: str) -> None:
    from edgefl.cost.formulas import note_uncounted

    heads = ["method", "blocks", "part", "layer MMACs", "forward MMACs", "training MFLOPs", "x FedAvg", "Eq. 3"]
    heads += ["launches", "MB touched", "peak MB", "optimizer MB", "stored M", "kept M", "down MB", "up MB"]
    note = (
        f"{images} part: share of the model, by capacity. Eq. 3: FedBR's published factor over FedAvg. stored: "
        "parameters in memory while training; kept: parameters kept between a client's rounds. MB are 10^6 bytes."
    )
    if base := max((row.base_bytes for row in rows if not isinstance(row, dict)), default=0):
        note += f" The frozen weights, sent once or never: {base / 1e6:,.4g} MB."
    print_table(
        heads, [_cells(row, fedavg_flops) for row in rows if not isinstance(row, dict)], notes=[note], words=(0, 1)
    )
    for row in rows:
        if not isinstance(row, dict):
            note_uncounted(row.step.operators)
    for refused in (row for row in rows if isinstance(row, dict)):
        say(f"{refused['method']}: {refused['refused']}")


def _cells(row: MethodCost, fedavg_flops: float) -> list[str]:
    step, stored = row.step, row.stored
    numbers: list[float | None] = [step.layer_macs / 1e6, step.forward_macs / 1e6, step.training_flops / 1e6]
    numbers += [step.training_flops / fedavg_flops, row.paper_factor, float(step.launches)]
    numbers += [step.bytes_touched / 1e6, step.peak_memory_bytes / 1e6, row.optimizer_bytes / 1e6]
    numbers += [stored.stored / 1e6, stored.between_rounds / 1e6]
    numbers += [sum(part.bytes for part in way) / 1e6 for way in (row.down, row.up)]
    part = "" if row.share is None else f"{row.share:g}"
    return [row.label, str(row.alpha), part, *("" if number is None else f"{number:,.4g}" for number in numbers)]
