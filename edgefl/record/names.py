"""The file names that edgefl uses in a run directory, and a check for labels that name a method's folder."""

import re

SCENARIO = "scenario.yaml"
SUMMARY = "summary.json"
COSTS = "costs.json"
SENSITIVITY = "sensitivity.parquet"
PICTURE = "accuracy.png"
AGAINST = "against.png"
STATE = "unfinished.json"
FAULTED = "faulted.json"
LOCK = "unfinished.lock"
INPUTS = "inputs"
LONGER = "longer"

FILES = (SCENARIO, SUMMARY, COSTS, SENSITIVITY, PICTURE, AGAINST, STATE, FAULTED, LOCK)
"""The files next to the methods' folders."""
OWN = frozenset((*FILES, INPUTS, LONGER))
"""Everything that edgefl creates next to the methods' folders; a label must not be one of these names."""

EVENTS = "events.parquet"
ROUNDS = "rounds.parquet"
CLIENTS = "clients.parquet"
FINAL_MODEL = "final.safetensors"
CLIENT_MODELS = "clients.safetensors"
CHECKPOINT = "checkpoint.safetensors"
EMULATION = "emulation.json"
JOURNAL = "journal.arrow"
CHECKPOINTS = "checkpoints"
REPLIES = "replies"

SEED_FILES = (EVENTS, ROUNDS, CLIENTS, FINAL_MODEL, CLIENT_MODELS, CHECKPOINT, EMULATION, JOURNAL)
"""The files in the folder of one method and seed."""
SEED_FOLDERS = (CHECKPOINTS, REPLIES)
"""The folders next to them, while the run is in progress."""

SWEEP = "sweep.json"
SWEEP_LOCK = "sweep.lock"
SWEEP_TABLE = "sweep.parquet"
IN_A_SWEEP = frozenset((SWEEP, SWEEP_LOCK, SWEEP_TABLE))
"""The files that edgefl creates in the folder of a sweep, next to its jobs."""

LABEL_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9+_.-]{0,98}[A-Za-z0-9+_-])?"
"""No separator, space or control character, no dot at either end. ASCII only, which all file systems encode alike."""

SEED = "seed-"
"""The beginning of the name of a seed's folder inside its method's folder."""


def label_fault(label: str) -> str | None:
    """Why a label cannot name a method's folder in a run directory; ``None`` if it can.

    The check ignores case, because some file systems do.

    >>> label_fault("Summary.json")
    'expected another label: edgefl uses this name in a run directory itself'
    """
    if re.fullmatch(LABEL_PATTERN, label) is None:
        return (
            "expected a label that can name a folder: at most 100 letters, digits and + - _ . with a letter or digit "
            "in front and no dot at the end"
        )
    if label.casefold() in OWN:
        return "expected another label: edgefl uses this name in a run directory itself"
    return None


BASELINES = frozenset({"local", "central"})
"""Methods that take no part in a run's verdict."""
