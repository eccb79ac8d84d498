"""Checks, measures and uses a GPU: agreement with the CPU, the benchmarks' aims, and rows of the papers' tables.

    python tests/gpu/gpu_campaign.py FOLDER [--tiny] [--part NAME]... [--minutes 9] [--set PATH=VALUE]...

Each call gives every unfinished part at most nine minutes, the most valuable first, so call it again until nothing is
unfinished: a run of a paper's scenario is interrupted when its time is over, and resumed by the next call. A part that
fails is in the table, the others go on, and the next call tries it again. ``--part NAME`` runs one part. ``--set``
changes the papers' scenarios, for example their data. ``--tiny`` rehearses everything on the CPU in some minutes.

FOLDER contains ``results.json``, ``results.md`` (the table, for the docs), PART.json for each part, and the runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from edgefl.files import write_file
from edgefl.version import __version__

sys.path.insert(0, str(Path(__file__).parent))
from gpu_campaign_parts import GRACE_SECONDS, PARTS, Part, Place
from gpu_campaign_tables import as_markdown

REPOSITORY = Path(__file__).parents[2]

MINUTES = 9
"""The longest part, so that it fits into machines that are lent for ten minutes."""


def advance(part: Part, place: Place) -> dict[str, Any]:
    """Run a part, or continue it, and store its record; a finished part is left as it is."""
    file = place.folder / f"{part.name}.json"
    known = json.loads(file.read_text()) if file.exists() else {"seconds": 0.0, "slices": 0}
    if known.get("state") == "done":
        return known
    start = time.perf_counter()
    try:
        found = part.run(place)
    except Exception as error:  # noqa: BLE001  (whatever it is, the other parts go on)
        found = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    record = {
        **found,
        "aim": part.aim,
        "seed": getattr(part, "seed", None),
        "command": shown(part.command(place), place),
        "seconds": known["seconds"] + time.perf_counter() - start,
        "slices": known["slices"] + 1,
    }
    write_file(file, json.dumps(record, indent=1) + "\n")
    return record


def shown(command: Sequence[str], place: Place) -> str:
    """A command as the docs print it, with paths from the repository and from the campaign's folder."""
    repository, folder = f"{REPOSITORY}/", f"{place.folder}/"
    words = [word.replace(folder, "").replace(repository, "") for word in command]
    return shlex.join(["python", *words[1:]])


def other_campaign(place: Place) -> str | None:
    """Why a folder cannot be continued: its parts were made on another kind of device, or with other sizes."""
    file = place.folder / "results.json"
    if not file.exists():
        return None
    known = json.loads(file.read_text())
    if (known["device"], known["tiny"]) == (device_of(place), place.tiny):
        return None
    kind = "a rehearsal" if known["tiny"] else "a campaign"
    return f"{place.folder} holds {kind} on {known['device']}; choose another folder"


def device_of(place: Place) -> str:
    """The name of the device that trains."""
    return torch.cuda.get_device_name() if place.device == "cuda" else f"CPU ({platform.machine()})"


def gathered(place: Place) -> dict[str, Any]:
    """The records of all parts so far, with what they were made on; also written to ``results.json`` and ``.md``."""
    files = {part.name: place.folder / f"{part.name}.json" for part in PARTS}
    results = {
        "device": device_of(place),
        "tiny": place.tiny,
        "versions": {
            "edgefl": __version__,
            "PyTorch": torch.__version__,
            "CUDA": torch.version.cuda or "none",
            "Python": platform.python_version(),
        },
        "parts": {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()},
    }
    write_file(place.folder / "results.json", json.dumps(results, indent=1) + "\n")
    write_file(place.folder / "results.md", as_markdown(results))
    return results


def campaign(place: Place, parts: Sequence[Part], timer: Callable[[], Callable[[], bool]]) -> dict[str, Any]:
    """Give each part its time, and write the table after each.

    Args:
        place: where it runs.
        parts: the parts.
        timer: is called when a part begins; its result says whether the part's time is over.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        record = advance(part, Place(place.folder, place.device, place.tiny, timer(), place.changes))
        print(f"{part.name}: {record['state']}", flush=True)
        gathered(place)
    return gathered(place)


def seconds_from_now(seconds: float) -> Callable[[], bool]:
    """Whether some seconds have passed since this call."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 1 if a part is unfinished or failed, 2 without a GPU or in another campaign's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="rehearse on the CPU with tiny sizes")
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="only this part")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="the longest time of a part (9)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change the papers' scenarios")
    given = parser.parse_args(arguments)
    if not given.tiny and not torch.cuda.is_available():
        print("there is no CUDA device here; --tiny rehearses the campaign on the CPU", file=sys.stderr)
        return 2
    parts = [part for part in PARTS if given.part is None or part.name in given.part]
    # The end of a command belongs to its part's time.
    seconds = max(60 * given.minutes - GRACE_SECONDS, 1)
    place = Place(given.folder, "cpu" if given.tiny else "cuda", given.tiny, changes=tuple(given.set))
    if (reason := other_campaign(place)) is not None:
        print(reason, file=sys.stderr)
        return 2
    results = campaign(place, parts, lambda: seconds_from_now(seconds))
    print(as_markdown(results))
    return int(any(results["parts"][part.name]["state"] != "done" for part in parts))


if __name__ == "__main__":
    sys.exit(main())
