"""``edgefl verify``: check that a run's event log obeys its rules."""

from __future__ import annotations

import typer

from edgefl.cli.arguments import Run
from edgefl.cli.printing import say


def verify(
    run: Run,
) -> None:
    """Check that a run's event log obeys its rules, and that scenario.yaml reproduces the log and summary.json.

    The exit code is 1 if a rule is violated.
    """
    from edgefl.experiment.directory import read_run_summary
    from edgefl.rerun.verify import other_software
    from edgefl.rerun.verify import verify as violations_in

    violations = violations_in(run)
    for violation in violations:
        say(violation)
    if violations:
        say(f"{run}: {len(violations)} {'violation' if len(violations) == 1 else 'violations'}", err=True)
        raise typer.Exit(1)
    summary = read_run_summary(run)
    note = "" if summary.of_this_version else f"; not executed again, because edgefl {summary.edgefl} wrote it"
    if (made_with := other_software(run, summary)) is not None:
        note += f"; it was made with {made_with}, of which other versions are installed here"
    say(f"{run}: every invariant holds{note}")
