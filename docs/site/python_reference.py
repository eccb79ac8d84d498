"""The Python reference: which public names it shows, under which headings; docstrings say the rest."""

from __future__ import annotations

PARTS = {
    "Run and look": ["simulate", "load_scenario", "RunResult", "UserError", "experiment.RunsFailed",
                     "experiment.NotWritten", "experiment.progress.Progress"],
    "Runs": ["experiment.run", "experiment.resume", "experiment.replay", "experiment.verify"],
    "Network": ["network.FlowNetwork", "network.Flow", "network.StepTrace", "network.read_mahimahi", "network.read_csv",
                "network.Transport", "network.lv08"],
    "Devices": ["fleet.load_profile", "fleet.Operator", "fleet.step_seconds", "fleet.fits", "fleet.compute_joules",
                "fleet.transfer_joules"],
    "Costs": ["learning.cost.CostModel"],
    "Methods and their parts": [
        "learning.methods.build.build_method", "learning.methods.recipe.Recipe",
        "learning.objectives.base.Objective", "learning.objectives.base.Loss", "learning.objectives.base.Batch",
        "learning.objectives.base.Context", "learning.rules.base.LocalRule", "learning.rules.base.LocalOptions",
        "learning.servers.base.ServerUpdate", "learning.servers.base.RoundFacts", "learning.payload.Payload",
        "learning.payload.ModelSizes", "learning.client_state.ClientState", "learning.local_step.local_step",
    ],
    "Models": ["learning.models.registry.build_model", "learning.models.registry.ModelSpec",
               "learning.models.block_model.BlockModel"],
    "Data": ["learning.data.spec.DataSpec", "learning.data.spec.Description", "learning.data.spec.Pixels"],
    "Selection and scheduling": ["scheduling.selection.base.SelectorSpec", "scheduling.selection.base.Selector",
                                 "scheduling.blocks.base.BlockSchedulerSpec"],
    "Randomness and units": ["randomness.generator", "units.parse"],
}  # fmt: skip
"""Headings, and the names below each as one imports them from edgefl."""

INTRODUCTION = """
``edgefl.simulate``, ``edgefl.load_scenario``, ``edgefl.Scenario``, ``edgefl.RunResult`` and ``edgefl.UserError`` are
all that most programs need; a scenario's fields are those of :doc:`its file <scenario>`. Below them stand the parts
that can be used alone, and the bases of :doc:`parts of your own <../extending>`.
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
