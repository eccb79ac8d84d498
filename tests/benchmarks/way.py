"""The files that one client's job passes from the command line to its row: ``python -m tests.benchmarks.way``.

One small ``edgefl simulate`` runs in this process: one round, one client, engine ``sequential``. A file counts if one
of its functions has the job in hand in one of its ``FORMS`` (as an argument, a variable, its result, or an element of
these), if its function waits for one that has (it is on the stack), or is called by one that has. So selection, the
objective and the layers of a model, which are only called further below, do not count. It ends at ``rounds.parquet``.
"""

import json
import sys
import tempfile
from pathlib import Path

import edgefl
from edgefl.cli.entry import main

from ..small_runs import SMALL

FORMS = {"TrainingJob", "JobId", "JobTask", "JobInputs", "JobResult", "Outcome", "Arrival", "Arrivals", "Feedback"}
FORMS |= {"Participation", "Delivery", "Transfer", "Flow", "RoundRow"}
HOME, passed = f"{Path(edgefl.__file__).parent}/", set()


def counts(frame):
    return frame and frame.f_code.co_filename.startswith(HOME) and frame.f_code.co_name != "<module>"


def has_job(values):
    listed = [each for value in values if isinstance(value, list | tuple | dict) for each in value]
    return any(type(value).__name__ in FORMS for value in [*values, *listed])


def follow(frame, event, result):
    code = frame.f_code
    if event in {"call", "return"} and counts(frame):
        near = [each.f_locals.values() for each in (frame, frame.f_back) if counts(each)]
        held = any(has_job([result, *values]) for values in near)
        while frame and held:
            passed.update([frame.f_code.co_filename.removeprefix(HOME)] if counts(frame) else [])
            frame = frame.f_back
    if event == "return" and code.co_name == "write_rounds":
        sys.setprofile(None)


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    (folder / "small.yaml").write_text(json.dumps(SMALL | {"training": {"rounds": 1, "cohort": 1}}))
    sys.argv = ["edgefl", "simulate", f"{folder}/small.yaml", "--out", f"{folder}/run", "--engine", "sequential"]
    sys.setprofile(follow)
    main()
    print(*sorted(passed), f"{len(passed)} files", sep="\n")
