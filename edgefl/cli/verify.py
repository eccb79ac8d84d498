"""``edgefl verify``: check a run's event log against the rules of the model, and the run against its scenario."""

import typer

from edgefl.cli.arguments import Run, Trust
from edgefl.cli.printing import say
from edgefl.wording import counted


def verify(run: Run, trust: Trust = False) -> None:
    """Check a run's event log against the model's rules, and that scenario.yaml reproduces the log and summary.json.

    The exit code is 1 if a rule is violated.
    """
    from edgefl.flower.scenario import app_scenario_of
    from edgefl.record.summary import read_run
    from edgefl.rerun.verify import other_software, why_not_again
    from edgefl.rerun.verify import verify as violations_in

    violations = violations_in(run, trust=trust)
    for violation in violations:
        say(violation)
    if violations:
        say(f"{run}: {counted(len(violations), 'violation')}", err=True)
        raise typer.Exit(1)
    summary = read_run(run)[1]
    runs = counted(sum(map(len, summary.methods.values())), "run")
    reason = why_not_again(run, summary, trust=trust)
    again = ", same results when simulated again" if reason is None else ""
    note = "" if reason is None else f"; not simulated again, because {reason}"
    if app_scenario_of(run) is None and (made_with := other_software(run, summary)) is not None:
        note += f"; made with {made_with}, but other versions are installed here"
    say(f"{run}: all checks passed for {runs} (unchanged inputs, consistent event log{again}){note}")
