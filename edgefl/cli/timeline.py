"""``edgefl timeline``: show one method of a run on a time axis, in a trace viewer or as a picture."""

import json
import re
from pathlib import Path

from edgefl.cli.arguments import Run, new_figure_file, new_file, option
from edgefl.cli.printing import say
from edgefl.errors import UserError


def timeline(  # noqa: PLR0917  (the options of the command)
    run: Run,
    method: str = option(..., "The method's label.", metavar="NAME"),
    seed: int | None = option(None, "The seed; the method's first if not given.", metavar="N"),
    rounds: str | None = option(None, "Only these rounds; all if not given.", metavar="A-B"),
    output: Path | None = new_file("Write the trace to this file.", "--output", "-o"),
    png: Path | None = new_figure_file("Draw the first selected round as a Gantt chart."),
) -> None:
    """Show the activity of every client and link over time.

    The trace is in the Chrome trace-event format; open it at ui.perfetto.dev in a browser.
    """
    from edgefl.record.paths import write_output
    from edgefl.report import RunResult
    from edgefl.report.figure_file import write_figure
    from edgefl.report.timeline.data import read_timeline
    from edgefl.report.timeline.gantt import gantt_figure
    from edgefl.report.timeline.trace import trace_of

    if output is None and png is None:
        raise UserError("expected an output file: -o FILE.json or --png FILE.png")
    selected = None if rounds is None else _rounds(rounds)
    result = RunResult(run)
    if seed is None:
        seed = result.results[method][0].seed if method in result.results else 0
    result.rounds_of(method, seed)  # raises a UserError for an unknown method or seed
    found, name = read_timeline(result.paths.of(method, seed).folder), f"{result.name}, {method}, seed {seed}"
    if output is not None:
        trace = trace_of(found, name, selected)
        write_output(output, json.dumps(trace, separators=(",", ":"), allow_nan=False))
        say(f"{output}: {len(trace['traceEvents'])} events; open it at ui.perfetto.dev")
    if png is not None:
        number = selected[0] if selected else 1
        write_figure(gantt_figure(found, number, name), png)
        say(f"{png}: round {number}")


def _rounds(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if match is None:
        raise UserError(f"expected rounds such as 3 or 3-8, found '{text}'", field="--rounds")
    return int(match[1]), int(match[2] or match[1])
