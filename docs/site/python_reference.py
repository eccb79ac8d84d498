"""The Python reference: its public names and headings; the text comes from the docstrings."""

from __future__ import annotations

from edgefl import methods

PARTS = {
    "Runs and results": ["simulate", "load_scenario", "RunResult", "UserError", "experiment.RunsFailed",
                     "experiment.NotWritten"],
    "The other commands": ["plan", "price_steps", "schedule", "run_sweep", "replay", "open_run", "timeline"],
    "Follow a run": ["Listener", "record.events.Event", "record.rounds.RoundRow", "record.summary.SeedResult",
                     "record.figures.Quantity"],
    "Parts of a run": ["experiment.run", "experiment.resume", "rerun.replay.Replay", "rerun.verify.verify"],
    "Network": ["network.FlowNetwork", "network.Flow", "network.StepTrace", "network.read_mahimahi",
                "network.read_traces", "network.Transport", "network.lv08", "network.Tcp", "network.FifoQueue"],
    "Devices": ["fleet.load_profile", "fleet.Operator", "fleet.step_seconds", "fleet.fits", "fleet.compute_joules",
                "fleet.transfer_joules"],
    "Costs": ["cost.CostModel"],
    "Methods and their parts": [f"methods.{name}" for name in methods.__all__],
    "Models": ["models.registry.build_model", "models.registry.ModelSpec",
               "models.block_model.BlockModel"],
    "Data": ["data.spec.DataSpec", "data.spec.Description", "data.spec.Samples"],
    "Selection and scheduling": ["scheduling.selection.base.SelectorSpec", "scheduling.selection.base.Selector",
                                 "scheduling.blocks.base.BlockSchedulerSpec",
                                 "scheduling.bandwidth.base.BandwidthSpec", "scheduling.bandwidth.base.Transfers",
                                 "scheduling.bandwidth.base.Order"],
    "Randomness and units": ["randomness.generator", "units.parse"],
}  # fmt: skip
"""Headings, and the names below each as they are imported from edgefl."""

INTRODUCTION = """
``edgefl.simulate``, ``edgefl.load_scenario``, ``edgefl.Scenario``, ``edgefl.RunResult``, ``edgefl.Listener`` and
``edgefl.UserError`` are all that most programs need, with the other commands; a scenario's fields are those of
:doc:`its file <scenario>`. The parts that can be used alone, and the base classes of
:doc:`your own parts <../extending>`, follow.
"""


def page() -> str:
    """The page, in reStructuredText as the docstrings are."""
    text = _heading("Python", "=") + INTRODUCTION + "\n"
    for heading, names in PARTS.items():
        text += _heading(heading, "-") + "".join(_entry(name) for name in names)
    return text


def _heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"


def _entry(name: str) -> str:
    kind = "autoclass" if name.rpartition(".")[2][0].isupper() else "autofunction"
    return f"\n.. {kind}:: edgefl.{name}\n\n"
