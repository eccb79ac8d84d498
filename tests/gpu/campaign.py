"""All that there is to do on a machine with a GPU, the most valuable first: ``campaign.py --help``.

These are the tests of this folder, the training benchmark in two precisions, and rows of the papers' tables. Call it
again to go on: finished parts are kept, interrupted runs are resumed, and the other parts begin again. Without the
original CIFAR-10 ($EDGEFL_DATA), its rows use the copy with JPEG quality 75, where accuracies are not comparable.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

from edgefl.data.location import data_root
from edgefl.record.paths import RunPaths, is_interrupted
from edgefl.report import RunResult
from edgefl.report.published import comparisons

ROOT = Path(__file__).resolve().parents[2]
LEAST, STOPPING = 40, 20  # seconds: the least that a part is begun with, and the most that it has to stop after SIGINT
CASES = ("cnn", "pfl-cifar10", "resnet18", "mobilenet_v2", "resnet56", "vit_tiny")
ROWS = (
    ("fedadc/table1_cifar10_s2_c10", "fedavg", "fedadc", "fedadc+"),
    ("fedadc/fig1_s2", "slowmo"),
    ("fedadc/table1_cifar10_s2_c10", "feddyn", "fedprox", "ntd", "fedgkd", "moon", "fedrs"),
    ("fedadc/table1_cifar100_dir5_c10", "fedavg", "fedadc", "fedadc+"),
    ("fedbr/fig7_level7", "fedavg", "fedmlb", "fedbr"),
    ("fedalign/table3_e10", "fedavg", "fedalign"),
    ("fedmlb/table1_cifar100_100clients", "fedavg", "fedmlb"),
)
JPEG_COPY = ("data.name=parquet", "data.folder=cifar10-jpeg")
SMALL = (
    *("data.name=synthetic", "data.shape=[3, 32, 32]", "data.train=2000", "data.test_images=100"),
    *("training.rounds=2", "training.cohort=2", "training.local={steps: 1, batch: 8, lr: 0.01}"),
)


def measurements(device, rehearse):
    """The commands of the tests and of the benchmark, next to which nothing else runs."""
    tests = ["pytest", "-q", "-n", "2", "-m", "gpu", *["--no-skips"] * (device == "cuda"), "tests/gpu"]
    timed = ["tests.benchmarks.training", "--device", device, "--json", *["--quick"] * rehearse]
    timed += ["--precision", "float32", "--precision", "bfloat16", "--case"]
    return {"tests": tests, **{f"training-{case}": [*timed, case] for case in CASES}}


def rows(folder, device, rehearse):
    """The command of each method's run."""
    copied = (data_root() / "cifar10-jpeg").is_dir() and not (data_root() / "cifar-10-batches-py").is_dir()
    found = {}
    for scenario, *methods in ROWS:
        is_cifar10 = scenario.startswith(("fedadc/table1_cifar10_", "fedadc/fig1_"))
        changes = SMALL if rehearse else JPEG_COPY if copied and is_cifar10 else ()
        for method in methods:
            name = f"{scenario.replace('/', '-')}-{method}"
            begin = ["edgefl", "simulate", f"papers/{scenario}", "--method", method, "--seed", "0", "--device", device]
            begin += [*(word for change in changes for word in ("--set", change)), "--out", str(folder / name)]
            begin += [] if is_cifar10 else ["--engine", "sequential"]  # faster for residual networks
            begun = is_interrupted(folder / name) or RunPaths(folder / name).faulted.exists()
            found[name] = ["edgefl", "simulate", "--resume", str(folder / name)] if begun else begin
    return found


def work(folder, commands, record, end, at_once=1):
    """Run parts in their order until ``end``, and note their states and seconds."""
    running, waiting = {}, [name for name in commands if record.get(name, {}).get("state") != "done"]

    def note(name, code, otherwise):
        seconds = record.get(name, {}).get("seconds", 0) + monotonic() - running.pop(name)[1]
        record[name] = {"state": "done" if code == 0 else otherwise, "seconds": seconds}
        (folder / "campaign.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
        print(f"{name}: {record[name]['state']}", flush=True)

    try:
        while monotonic() < end - STOPPING and (running or waiting):
            if waiting and len(running) < at_once and monotonic() < end - STOPPING - LEAST:
                name = waiting.pop(0)
                with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.log").open("ab") as log:
                    words = [sys.executable, "-m", *commands[name]]
                    running[name] = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=log), monotonic()
            elif not running:
                break
            sleep(0.1)
            for name, (child, _) in list(running.items()):
                if child.poll() is not None:
                    note(name, child.returncode, "failed")
    finally:
        for child, _ in running.values():
            child.send_signal(signal.SIGINT)
        for name, (child, _) in list(running.items()):
            try:
                child.wait(STOPPING)
            except subprocess.TimeoutExpired:
                child.kill()
            note(name, child.wait(), "interrupted")


def figure(folder, name, state):
    """The figure of a finished part; of another one its last round, or the last line that it printed."""
    files = [file for file in (folder / f"{name}.log", folder / f"{name}.out") if file.exists()]
    said = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()] or [""]
    if state == "done" and name.startswith("training"):
        return fastest(json.loads(files[-1].read_text(encoding="utf-8"))["cases"][0]["rows"])
    if state == "done" and (folder / name).exists():
        run = RunResult(folder / name)
        first, ((result,),) = comparisons(run)[0], run.results.values()
        paper = first.shown(first.published) if first.rank is None else f"rank {first.rank}"
        return f"{result.accuracy.final:.2%}; {first.metric} {first.shown(first.ours)}, the paper's {paper}"
    rounds = [line for line in said if "best accuracy" in line]
    return (rounds if rounds and state == "interrupted" else said)[-1]


def fastest(contenders):
    """Of each precision, the engine with the most images per second, and its ratios to centralised training."""
    engines = [row for row in contenders if row["local_steps_per_second"]]
    best = {row["precision"]: row for row in sorted(engines, key=lambda row: row["images_per_second"])}
    return "; ".join(
        f"{precision} {row['images_per_second']:,.0f} images/s ({row['name']}), "
        f"{row['to_centralised_same_batch']:.2f} x same batch, {row['to_centralised_cohorts_batch']:.2f} x cohort's"
        for precision, row in best.items()
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for the whole call")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="runs at the same time")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rehearse", action="store_true", help="two rounds of synthetic images; figures mean nothing")
    given = parser.parse_args()
    end, folder = monotonic() + given.seconds, given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["EDGEFL_GPU_TESTS_ON"] = given.device
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    noted = folder / "campaign.json"
    record = json.loads(noted.read_text(encoding="utf-8")) if noted.exists() else {}
    first, later = measurements(given.device, given.rehearse), rows(folder, given.device, given.rehearse)
    try:
        work(folder, first, record, end)
        work(folder, later, record, end, given.at_once)
    except KeyboardInterrupt:
        print("stopped; call it again to go on")
    for name in (*first, *later):
        state, seconds = record.get(name, {"state": "not begun", "seconds": 0}).values()
        print(f"{name:<50}{state:<11}{seconds:>8.1f} s  {figure(folder, name, state)}")


if __name__ == "__main__":
    main()
