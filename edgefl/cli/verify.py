"""``edgefl verify``: check a run's event log against the rules of the model, and the run against its scenario."""

from __future__ import annotations

import typer

from edgefl.cli.arguments import Run
from edgefl.cli.printing import say


def verify(run: Run) -> None:
    """Check a run's event log against the model's rules, and that scenario.yaml reproduces the log and summary.json.

    The exit code is 1 if a rule is violated.
    """
    from edgefl.experiment.directory import read_run_summary
    from edgefl.flower.scenario import app_scenario_of
    from edgefl.rerun.verify import is_emulated, is_executed_again, other_software
    from edgefl.rerun.verify import verify as violations_in

    violations = violations_in(run)
    for violation in violations:
        say(violation)
    if violations:
        say(f"{run}: {len(violations)} {'violation' if len(violations) == 1 else 'violations'}", err=True)
        raise typer.Exit(1)
    summary = read_run_summary(run)
    count = sum(map(len, summary.methods.values()))
    runs = f"{count} {'run' if count == 1 else 'runs'}"
    if app_scenario_of(run) is not None:
        note = "not simulated again, because its app is not executed"
        say(f"{run}: all checks passed for {runs} (unchanged inputs, consistent event log); {note}")
        return
    executed = is_executed_again(run, summary)
    again = ", same results when simulated again" if executed else ""
    note = ""
    if not executed:
        reason = "its Python files are not executed" if summary.of_this_version else f"edgefl {summary.edgefl} wrote it"
        if is_emulated(run, summary):
            reason = "its seconds were measured, and rules of computed seconds were not checked"
        note = f"; not simulated again, because {reason}"
    if (made_with := other_software(run, summary)) is not None:
        note += f"; made with {made_with}, but other versions are installed here"
    say(f"{run}: all checks passed for {runs} (unchanged inputs, consistent event log{again}){note}")
