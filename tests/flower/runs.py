"""Small runs of small apps."""

import importlib.util
import json
import textwrap
from pathlib import Path

import pytest

from edgefl.flower.scenario import AppScenario
from edgefl.record import RunPaths
from edgefl.record.tables import read_events
from edgefl.rerun.verify import verify
from edgefl.validation import validated

APPS = Path(__file__).parent / "apps"

needs_flwr = [
    pytest.mark.flower,
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="needs the extra flower"),
]

LATENCY, DOWN, UP = 0.01, 20e6, 5e6


def world(**keys):
    """The data of a scenario: four Raspberry Pis with links of their own that share nothing."""
    data = {
        "name": "apps",
        "flower": {"app": str(APPS / "current")},
        "data": {"clients": 4},
        "fleet": [{"profile": "raspberry-pi-5", "share": 1, "link": "wifi"}],
        "network": {
            "topology": {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}, "latency": "10 ms"},
            "links": {"wifi": {"down": "20 Mbit/s", "up": "5 Mbit/s"}},
        },
    }
    return data | keys


def app_run(out, **keys):
    """The finished run directory of such a scenario."""
    from edgefl.flower.run import run

    run(validated(AppScenario, world(**keys)), out=out)
    return RunPaths(out)


def events_of(paths, label="flower", seed=0, *kinds):
    rows = list(read_events(paths.of(label, seed).events))
    return [row for row in rows if row.kind in kinds] if kinds else rows


def summary_of(paths, label="flower"):
    return json.loads(paths.summary.read_text())["methods"][label][0]


def made_app(folder, server, client="return Message(RecordDict(), reply_to=message)"):
    """An app of a few lines: ``server`` has grid, context and say; ``client`` has message and context.

    ``say(value)`` appends a value, as JSON, to a file; :func:`said` reads them.
    """
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        textwrap.dedent(f"""
        [project]
        name = "made"
        version = "1.0.0"
        [tool.flwr.app]
        publisher = "edgefl"
        [tool.flwr.app.components]
        serverapp = "made:server"
        clientapp = "made:client"
        [tool.flwr.app.config]
        file = "{folder / "said"}"
        """)
    )
    start = """
    import json, random, time
    import numpy, torch
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    client, server = ClientApp(), ServerApp()

    def messages(grid, kind="query", content=None, **options):
        return [Message(content or RecordDict(), node, kind, **options) for node in grid.get_node_ids()]

    def codes(replies):
        return sorted(0 if each.has_content() else each.error.code for each in replies)
    """
    text = textwrap.dedent(start)
    for kind in ("train", "evaluate", "query"):
        text += (
            f"\n@client.{kind}()\ndef {kind}(message, context):\n    partition = context.node_config['partition-id']\n"
        )
        text += textwrap.indent(textwrap.dedent(client), "    ") + "\n"
    text += "\n@server.main()\ndef main(grid, context):\n"
    text += "    def say(value):\n"
    text += (
        "        with open(context.run_config['file'], 'a') as file:\n            print(json.dumps(value), file=file)\n"
    )
    text += textwrap.indent(textwrap.dedent(server), "    ") + "\n"
    (folder / "made.py").write_text(text)
    return {"app": str(folder), "seconds": "1 s"}


def said(folder):
    return [json.loads(line) for line in (folder / "said").read_text().splitlines()]


def check(paths):
    """The run obeys every rule of the model."""
    assert verify(paths.scenario.parent) == []


def answers(folder, server, client="return Message(RecordDict(), reply_to=message)", **keys):
    """The checked run directory of such an app, and what its server said."""
    paths = app_run(folder / "run", flower=made_app(folder / "app", server, client), **keys)
    check(paths)
    return paths, said(folder / "app")
