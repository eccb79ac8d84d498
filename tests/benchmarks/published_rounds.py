"""Local training of published federated rounds, predicted and measured: a table for docs/validation.md and its picture.

``EDGEFL_DATA=… python tests/benchmarks/published_rounds.py [PICTURE]``: the data folder has ``published_rounds``.
"""

from __future__ import annotations

import csv
import dataclasses
import re
import sys
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyarrow.parquet import read_table

from edgefl import simulate
from edgefl.data.location import data_root
from edgefl.fleet import DeviceProfile, load_profile
from edgefl.profiling.step_table import StepTime, read_step_table
from edgefl.profiling.table_profile import scaled_to
from edgefl.report.command_figures import predicted_figure
from edgefl.report.figure_file import write_figure

MNIST, CIFAR, CROPPED = "1.1 ms", "1.9 ms", "3.5 ms"
"""Reading an image on a core of speed 1. A random crop with padding and a flip take 0.85 times as long again:
torchvision on PIL images of 32 x 32 pixels, on an x86 core."""

NETWORKS = {
    "e2fl-net": ("e2fl_net", 16, "1x28x28", 0.9, MNIST),
    "e2fl-squeeze": ("e2fl_squeezenet", 16, "1x28x28", 0.9, MNIST),
    "e2fl-mbv3s": ("e2fl_mobilenet_v3_small", 16, "1x28x28", 0.9, MNIST),
    "e2fl-net-rpi5": ("lenet_cifar", 32, "3x32x32", 0, CIFAR),
    "yee-dscnn": ("yee_dscnn", 16, "3x32x32", 0.9, CIFAR),
    "yee-mbv3s": ("yee_mobilenet_v3_small", 32, "3x32x32", 0.9, CIFAR),
    "yee-tiny-b8": ("yee_tinycnn", 8, "1x28x28", 0.9, MNIST),
    "yee-tiny": ("yee_tinycnn", 16, "1x28x28", 0.9, MNIST),
    "fciot": ("ConvHar", 32, "3x1x400", 0, None),
    "colext": ("lenet_cifar", 64, "3x32x32", 0.9, CROPPED),
}
"""By the longest start of a setting's name."""

MOON = {"colext": ("moon", ";methods.0.projection=256")}
"""Settings of another method than FedAvg, and its options."""

LIKE = {
    **dict.fromkeys(("raspberry-pi-5-torch1", "raspberry-pi-3b-plus"), "raspberry-pi-4-torch1"),
    "raspberry-pi-4-torch2": "raspberry-pi-4",
}
"""Calibrations start from a profile that knows nothing of the board."""

FITTED = ("e2fl", "yee")
"""Deployments with several networks on a board, of which each can be predicted from the others."""


E1 = {
    "e2fl_net": "e2fl-net-4c-0628",
    "e2fl_squeezenet": "e2fl-squeeze-4c-0627",
    "e2fl_mobilenet_v3_small": "e2fl-mbv3s-4c-0627",
}
"""The scenarios of four boards, and the settings with their rounds."""


class Measured(NamedTuple):
    setting: str
    device: str
    seconds: float
    steps: float


def profile_of(setting: str, device: str) -> str:
    """The shipped profile of the board and its stack."""
    name = re.sub(r"^\d+x ", "", device).partition(" ")[0].replace("3b+", "3b-plus").replace("-4b", "-4")
    old = setting.startswith("e2fl") and "rpi5" not in setting
    if setting.startswith("yee"):
        name += "-torch2"
    return f"{name}-torch1" if old and name in {"raspberry-pi-4", "raspberry-pi-5"} else name


def read_rounds(file: Path) -> list[Measured]:
    """The mean seconds of local training of each setting and board; not the runs with under-voltage."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with file.open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            if row["quantity"] == "train_s" and row["setting_id"] != "yee-tiny-iid":
                samples, batch = int(row["samples_per_client"].split()[0]), int(row["batch"])
                steps = int(row["local_epochs"]) * (
                    samples // batch if "colext" in row["setting_id"] else -(-samples // batch)
                )
                found.setdefault((row["setting_id"], row["device"]), []).append((float(row["value"]), steps))
    return [Measured(*key, fmean(each for each, _ in values), values[0][1]) for key, values in found.items()]


def as_steps(rows: list[Measured], models: Path) -> list[StepTime]:
    """The rows as times of a step with its reading."""
    lines = ["model,python,batch,shape,classes,seconds,settings,method"]
    for row in rows:
        name, batch, shape, momentum, reading = NETWORKS[max(filter(row.setting.startswith, NETWORKS), key=len)]
        reads = f";training.local.input={{seconds: {reading}}}" if reading else ""
        method, options = MOON.get(row.setting.split("-")[0], ("fedavg", ""))
        settings = f"training.local.momentum={momentum}{reads}{options}"
        classes = 7 if name == "ConvHar" else 10
        lines.append(f"{name},{models}:{name},{batch},{shape},{classes},{row.seconds / row.steps},{settings},{method}")
    with TemporaryDirectory() as folder:
        table = Path(folder) / "steps.csv"
        table.write_text("\n".join(lines), encoding="utf-8")
        return list(read_step_table(table).times)


def calibrated(times: list[StepTime], profile: DeviceProfile) -> dict[str, float]:
    """The seconds of each network's step as a calibration on the board's other networks predicts them."""
    mean = {}
    for time in times:
        each = [other.seconds for other in times if other.operators == time.operators]
        mean[time.operators] = dataclasses.replace(time, seconds=fmean(each))
    if len(mean) < 3:
        return {}
    _, held = scaled_to(list(mean.values()), profile, name="own", source="the others", framework="the same")
    return {f"{each.time.model} {each.time.batch}": each.predicted for each in held}


def print_rounds(folder: Path) -> None:
    """Rounds of E1 in simulations whose two rates are fitted to the logged transfers of a single network.

    The server's Wi-Fi is shared by all downloads; the last client uploads alone.
    """
    with (folder / "rounds.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["setting_id"] in E1.values()]

    def logged(network: str, quantity: str) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for row in rows:
            if (row["setting_id"], row["quantity"]) == (E1[network], quantity):
                found.setdefault(row["device"], []).append(float(row["value"]))
        return {device: fmean(values) for device, values in found.items()}

    boards = {"raspberry-pi-3b-plus": [0, 1], "raspberry-pi-4-torch1": [2], "raspberry-pi-5-torch1": [3]}
    fleet = [{"profile": name, "clients": places, "link": "wifi"} for name, places in boards.items()]
    fleet[-1]["link"] = "lan"
    print("\n| links from | Mbit/s down, up | network | round, s | predicted | beside training, s | predicted |")
    print("|---|---|---|---|---|---|---|")
    for source in E1:
        down = 32e-6 * fmean(logged(source, "bytes_down").values()) / max(logged(source, "download_s").values())
        up = 8e-6 * fmean(logged(source, "bytes_up").values()) / fmean(logged(source, "upload_s").values())
        for network in E1:
            changes = {
                "fleet": fleet,
                "network.topology.server.down": f"{down} Mbit/s",
                "network.links.wifi.up": f"{up} Mbit/s",
                "training.rounds": 1,
                "training.local.input": {"seconds": MNIST},
                "round_overhead": {"kind": "flower-grpc"},
            }
            with TemporaryDirectory() as place:
                run = simulate(folder / "scenarios" / f"{network}.yaml", out=place, overrides=changes, train=False)
                events = read_table(run.paths.of("fedavg", 0).events).to_pylist()
                seconds = run.summary["methods"]["fedavg"][0]["seconds"]
            training = max(row["seconds"] for row in events if row["kind"] == "compute_end")
            measured, trained = logged(network, "round_s")["all"], max(logged(network, "train_s").values())
            print(
                f"| {source} | {down:.1f}, {up:.1f} | {network} | {measured:.1f} | {seconds:.1f} "
                f"({seconds / measured - 1:+.1%}) | {measured - trained:.1f} | {seconds - training:.1f} |"
            )


def main(arguments: list[str]) -> None:
    folder = data_root() / "published_rounds"
    rows = read_rounds(folder / "rounds.csv")
    times = as_steps(rows, folder / "scenarios" / "models_rounds.py")
    boards: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        boards.setdefault((row.setting.split("-")[0], profile_of(row.setting, row.device)), []).append(index)
    points, errors, held_out = [], [], []
    print("| setting | board | profile | network | measured, s | predicted | calibrated on the other networks |")
    print("|---|---|---|---|---|---|---|")
    for (deployment, name), places in boards.items():
        profile, held = load_profile(name), {}
        if deployment in FITTED:
            held = calibrated([times[at] for at in places], load_profile(LIKE.get(name, name)))
        for at in places:
            row, time = rows[at], times[at]
            ratio, own = time.on(profile) / time.seconds, held.get(f"{time.model} {time.batch}")
            points.append((deployment, "all", row.seconds, row.seconds * ratio))
            if deployment in FITTED:
                errors.append(ratio)
            if own is not None:
                held_out.append(own / time.seconds)
            print(
                f"| {row.setting} | {row.device} | `{name}` | {time.model} | {row.seconds:.1f} | {ratio:.2f} | "
                f"{'' if own is None else f'{own / time.seconds:.2f}'} |"
            )
    for what, ratios in (("uncalibrated", errors), ("calibrated", held_out)):
        off = sorted(max(ratio, 1 / ratio) for ratio in ratios)
        print(
            f"\n{what}, {' and '.join(FITTED)}: {len(off)} means; median error "
            f"{median(abs(ratio - 1) for ratio in ratios):.0%}, nine of ten within a factor of "
            f"{off[int(0.9 * len(off))]:.2f}, largest {off[-1]:.2f}"
        )
    print_rounds(folder)
    for picture in arguments:
        figure = predicted_figure(
            "Local training in published federated rounds", points, of="a round", legend="uncalibrated"
        )
        write_figure(figure, Path(picture))


if __name__ == "__main__":
    main(sys.argv[1:])
