"""The first process inside the namespaces: starts the nodes' processes, makes the links, and changes them on order.

All others in its process namespace end with it.
"""

import json
import pickle
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from edgefl.emulation.links import Links
from edgefl.emulation.namespaces import python
from edgefl.emulation.wiring import LINK_MAKER, LinkSettings, Wiring

_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def _live(coordinator: str, wiring: Wiring, settings: LinkSettings) -> None:
    with ExitStack() as stack:
        control = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        control.connect(coordinator)

        def report(**facts: Any) -> None:
            control.sendall(json.dumps(facts).encode() + b"\n")

        try:
            control_name = congestion_control(settings.queue)
            # Each in a network namespace of its own.
            nodes = {
                name: _started("unshare", "--net", *python("node"), name, coordinator, control_name)
                for name in wiring.nodes
            }
            lives = dict.fromkeys(wiring.nodes, 0)
            links = Links(wiring, {name: node.pid for name, node in nodes.items()}, settings)
            stack.callback(links.close)
            report(node=LINK_MAKER)
            for line in stack.enter_context(control.makefile("rb")):
                links.check()
                order = json.loads(line)
                match order["do"]:
                    case "capacities":
                        links.set_capacities({(source, target): rate for source, target, rate in order["changes"]})
                    case "kill":
                        name = order["name"]
                        nodes[name].kill()
                        nodes[name].wait()
                        # Its successor starts now, so that it is ready when the node is back.
                        lives[name] += 1
                        life = str(lives[name])
                        with links.inside(name):
                            nodes[name] = _started(*python("node"), name, coordinator, control_name, life)
                    case "counters":
                        report(counters=[[*ends, *count] for ends, count in links.counters().items()])
        except OSError as error:
            with suppress(OSError):  # the coordinator may be what has ended
                report(broken=str(error))
            raise


def congestion_control(queue: str) -> str:
    """Of the connections that nodes open: cubic for one queue, as most servers have it; the namespace's if empty."""
    return "cubic" if queue == "fifo" and "cubic" in _AVAILABLE.read_text().split() else ""


def _started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def main() -> None:
    """``python -m edgefl.emulation.link_maker COORDINATOR``, with the pickled plan on standard input."""
    (coordinator,) = sys.argv[1:]
    _live(coordinator, *pickle.load(sys.stdin.buffer))


if __name__ == "__main__":
    main()
