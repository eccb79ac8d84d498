"""``edgefl cost``: measure what a method costs a client, on the graph that it executes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from edgefl.cli import arguments
from edgefl.cli.arguments import Json, option
from edgefl.cli.printing import print_table, quiet, say, say_json
from edgefl.errors import EdgeflError, UserError

if TYPE_CHECKING:
    from edgefl.cost import CostModel
    from edgefl.cost.method_cost import MethodCost
    from edgefl.methods.recipe import Method
    from edgefl.models.registry import ModelSpec
    from edgefl.planning.training_time import OnDevice


def cost(  # noqa: PLR0917  (one parameter for each option; typer passes them by name)
    model: list[str] = option(
        ..., "Model, as in a scenario: cnn, or '{timm: resnet18}'; repeatable with --on.", "--model", "-m"
    ),
    method: str | None = option(None, "Method.", "--method", "-x"),
    changes: list[str] | None = arguments.changes(
        "Set by path in a scenario: model.stem=imagenet, methods.0.mu=0.1, training.local.momentum=0.9"
    ),
    batch: str = option("1", "Images in a batch; with --on also several numbers.", metavar="N,…"),
    classes: int = option(10, "Number of classes, or of outputs.", min=1),
    task: str = option("classification", "What the model is trained for, such as regression."),
    shape: str = option(
        "3x32x32",
        "Channels, height and width of an image, or a text's tokens; with --on also several.",
        metavar="CxHxW,…",
    ),
    grid: list[str] | None = option(
        None, "Values to compare with --on, in all combinations; repeatable.", metavar="PATH=V1,V2"
    ),
    images: int = option(500, "A client's training images, for --on.", min=1),
    on: str | None = option(
        None, "Seconds, memory and joules of a round on these devices.", "--on", metavar="DEVICE,…"
    ),
    all_methods: bool = option(False, "Compare all methods.", "--all"),
    as_json: Json = False,
) -> None:
    """Measure what one local step and one round of a method cost a client.

    One real local step (forward, backward, update) runs on tensors without data. MACs count the forward pass; layer
    MACs are what papers call FLOPs. Work is per step; memory is its peak. With --on, several models, batches, shapes
    and values of --grid make a table: which device can train what, and in which time.
    """
    from edgefl.cost import CostModel
    from edgefl.models.registry import build_model
    from edgefl.scenario.named_step import read_shape, read_step, read_task
    from edgefl.sweep.jobs import parse_grid, settings_of

    if on is not None and method is None:
        method = "fedavg"
    if (method is None) == (not all_methods):
        raise UserError("expected --method NAME, --on DEVICE,… or --all")
    of_task, batches = read_task(task), _read_batches(batch)
    shapes = [read_shape(each, field="--shape") for each in shape.split(",")]
    grids = settings_of(parse_grid(grid or []))
    settings = [[f"{path}={json.dumps(value)}" for path, value in each.items()] for each in grids]

    @lru_cache(maxsize=1)
    def costs_of(spec: ModelSpec, shape: tuple[int, ...]) -> CostModel:
        return CostModel(build_model(spec, shape, classes, of_task, numbers=False))

    def built(model: str, setting: Sequence[str], shape: tuple[int, ...], batch: int) -> tuple[CostModel, list[Method]]:
        spec, methods = read_step(model, method, [*(changes or []), *setting], batch)
        return costs_of(spec, shape), methods

    asked = list(product(model, settings, shapes, batches))
    if on is not None:
        with quiet(as_json):
            compared = _compared(asked, built, images, on)
        _show_devices(compared, images, as_json=as_json)
        return
    if len(asked) > 1:
        raise UserError("expected --on DEVICE,… with several models, batches, shapes or values")
    with quiet(as_json):
        costs, methods = built(*asked[0])
        rows = [row for each in methods for row in _rows(costs, each, every=all_methods)]
    if as_json:
        from edgefl.fleet import step_signature  # under which a device profile lists a step's measured time

        data = [
            row if isinstance(row, dict) else {**row.as_dict(), "signature": step_signature(row.step.operators)}
            for row in rows
        ]
        levels = {"levels": data} if "share" in data[0] else {}
        say_json({"model": model[0], "methods": data} if all_methods else {"model": model[0], **data[0], **levels})
    else:
        from edgefl.methods.build import build_method

        local = methods[0].local
        fedavg = costs.cost(build_method("fedavg", local), costs.model.depth, local.step_samples)
        _print(rows, fedavg.training_flops, f"Batch {batch} of {shape}, {classes} classes.")


def _read_batches(text: str) -> list[int]:
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() and len(each) < 10 and int(each) for each in parts):
        message = f"expected a number of images of at least 1, or several such as 1,8, found '{text}'"
        raise UserError(message, field="--batch")
    return [int(each) for each in parts]


def _compared(
    asked: Sequence[tuple[str, Sequence[str], tuple[int, ...], int]],
    built: Callable[..., tuple[CostModel, list[Method]]],
    images: int,
    on: str,
) -> list[dict[str, Any]]:
    """A row for each model, setting, shape and batch; where there are several, one that is refused has the reason."""
    from edgefl.cost.method_cost import stored_parameters
    from edgefl.fleet import load_profile
    from edgefl.planning.training_time import on_devices

    profiles, rows = [load_profile(name.strip()) for name in on.split(",")], []
    for model, setting, shape, batch in asked:
        rows.append({"model": model, "shape": list(shape), "batch": batch, "set": setting})
        try:
            costs, [method] = built(model, setting, shape, batch)
            adapted = method.objective.adapt(costs.model)
            rows[-1] |= {
                "method": method.label,
                "parameters": stored_parameters(adapted, method, adapted.depth).model,
                "devices": on_devices(costs, method, images, profiles),
            }
        except EdgeflError as error:
            if len(asked) == 1:
                raise
            rows[-1]["refused"] = str(error)
    return rows


def _show_devices(rows: list[dict[str, Any]], images: int, *, as_json: bool) -> None:
    from edgefl.cli.printing import show
    from edgefl.report.table import Column, Table, figures, words

    if as_json:
        data = [{**row, "devices": [each.as_dict() for each in row.get("devices", ())]} for row in rows]
        one = {"method": data[0]["method"], "images": images} if len(data) == 1 else {}
        one |= {name: data[0][name] for name in ("batch", "devices")} if one else {"images": images, "settings": data}
        say_json(one)
        return
    found: list[tuple[dict[str, Any], OnDevice]] = [(row, each) for row in rows for each in row.get("devices", ())]
    devices, alone = [each for _, each in found], len(rows) == 1
    columns = [
        *([] if alone else [words("model", [_words(row, rows) for row, _ in found])]),
        words("device", [each.device for each in devices]),
        Column("fits", ["yes" if each.fits else "no" for each in devices]),
        figures("needs", [each.peak_memory_bytes for each in devices], "bytes"),
        figures("has", [each.training_memory_bytes.nominal for each in devices], "bytes"),
    ]
    if alone:
        columns += [
            figures("time", [each.compute_seconds.nominal for each in devices], "seconds"),
            figures("at least", [each.compute_seconds.low for each in devices], "seconds"),
            figures("at most", [each.compute_seconds.high for each in devices], "seconds"),
            figures("energy", [each.joules.nominal for each in devices], "joules"),
        ]
        what = f"A round of {rows[0]['method']} on {images} images in batches of {rows[0]['batch']}: "
        what += f"{devices[0].steps} steps, without transfers"
    else:
        columns += [
            figures("step", [each.step_seconds.nominal if each.fits else None for each in devices], "seconds"),
            figures("energy", [each.step_joules.nominal if each.fits else None for each in devices], "joules"),
        ]
        what = "Seconds and joules of one local step"
    bounds = " At least, at most: all uncertain figures of a device at one end; ±: the mean error of a step." * alone
    notes = [f"{what}; needs, has: memory for training.{bounds}"]
    notes += [f"{_words(row, rows)}: {row['refused']}" for row in rows if "refused" in row]
    notes += dict.fromkeys(f"Seconds of {each.device} ({each.stack}): {each.evidence}." for each in devices)
    show(Table(columns, notes, []))


def _words(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """What distinguishes a row from the others, and its batch."""
    from edgefl.models.registry import MODELS
    from edgefl.scenario.named_step import read_model

    options = read_model(row["model"])
    kind = next((str(options[name]) for name in ("name", *MODELS.names()) if name in options), row["model"])
    parts = [kind, f"{row['parameters'] / 1e6:,.4g} M parameters"] if "parameters" in row else [kind]
    if any(each["shape"] != row["shape"] for each in rows):
        parts.append("x".join(map(str, row["shape"])))
    parts.append(f"batch {row['batch']}")
    settings = (each.replace('"', "").partition("=") for each in row["set"])
    return ", ".join([*parts, *(f"{path.rpartition('.')[2]} {value}" for path, _, value in settings)])


def _rows(costs: CostModel, method: Method, *, every: bool) -> list[MethodCost | dict[str, Any]]:
    """A method's costs for each capacity level, with --all also for each number of blocks that it may send.

    With --all, a method that is refused is listed with the reason.
    """
    from edgefl.cost.method_cost import method_cost

    levels = range(1 if method.submodels is None else len(method.submodels.levels))
    alphas = range(1, costs.model.depth + 1) if every and method.payload.sends_blocks else [None]
    samples = method.local.step_samples
    try:
        return [method_cost(costs, method, samples, alpha, level) for alpha in alphas for level in levels]
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
    counted = [row for row in rows if not isinstance(row, dict)]
    if base := max((row.base_bytes for row in counted), default=0):
        note += f" The frozen weights, sent once or never: {base / 1e6:,.4g} MB."
    print_table(heads, [_cells(row, fedavg_flops) for row in counted], notes=[note], words=(0, 1))
    for row in counted:
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
