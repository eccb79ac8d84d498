"""Transfers over real links with plain sockets: three kinds of processes, for tests and measurements.

``carry`` starts a lab in new namespaces; the lab starts a peer for each node, makes the links and plays the case.
"""

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from edgefl.emulation.wiring import LinkSettings

PORT = 7000


def carry(wiring, phases, settings=None, *, keep_load=False):
    """The seconds of each transfer of each phase over real links, from the phase's beginning.

    A phase: {"transfers": [[source, target, bytes, at]], "changes": [[at, source, target, bits_per_second]]}; times in
    seconds of the scenario.
    """
    from edgefl.emulation.machine import in_namespaces

    done = subprocess.run(
        [*in_namespaces(), sys.executable, __file__, "lab"],
        input=pickle.dumps((wiring, settings or LinkSettings(), phases)),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    return json.loads(done.stdout)


def lab():
    from edgefl.emulation.links import Links

    wiring, settings, phases = pickle.load(sys.stdin.buffer)
    peers = {
        node: subprocess.Popen(
            ["unshare", "--net", sys.executable, __file__, "peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for node in wiring.nodes
    }

    def ask(node, **order):
        peers[node].stdin.write(json.dumps(order) + "\n")

    def answer(node):
        return json.loads(peers[node].stdout.readline())

    began = time.monotonic()
    results = {"phases": []}
    with Links(wiring, {node: peer.pid for node, peer in peers.items()}, settings) as links:
        results["made"] = time.monotonic() - began
        for node in wiring.endpoints:
            ask(node, do="listen")
            answer(node)
        for source, target in wiring.routes:
            ask(source, do="connect", to=wiring.addresses[target])
            answer(source)
        for phase in phases:
            start = time.monotonic() + 0.1
            for number, (source, target, size, at) in enumerate(phase["transfers"]):
                ask(target, do="receive", origin=wiring.addresses[source], bytes=size, number=number)
                answer(target)
                begin = start + at * settings.dilation
                ask(source, do="send", to=wiring.addresses[target], bytes=size, at=begin)
            late = 0.0
            for at, source, target, rate in sorted(phase.get("changes", [])):
                due = start + at * settings.dilation
                time.sleep(max(due - time.monotonic(), 0.0))
                before = time.monotonic()
                links.set_capacities({(source, target): float(rate)})
                late = max(late, time.monotonic() - before)
            ends = [0.0] * len(phase["transfers"])
            for _, target, _, _ in phase["transfers"]:
                report = answer(target)
                ends[report["number"]] = (report["at"] - start) / settings.dilation
            lost = {}
            for node in wiring.endpoints:
                ask(node, do="losses")
                lost[node] = answer(node)["lost"]
            carried = [[*ends, count] for ends, count in links.counters().items()]
            results["phases"].append({"ends": ends, "change": late, "lost": sum(lost.values()), "carried": carried})
            links.check()
            time.sleep(0.1)
    print(json.dumps(results))


def peer():
    connections = {}
    incoming = {}
    lock = threading.Lock()

    def report(**facts):
        with lock:
            print(json.dumps(facts), flush=True)

    def accept(listening):
        while True:
            connection, (origin, _) = listening.accept()
            connection.sendall(connection.recv(1))
            incoming[origin] = connection

    def receive(origin, size, number):
        while origin not in incoming:
            time.sleep(0.001)
        connection, left = incoming[origin], size
        space = bytearray(1 << 18)
        while left:
            left -= connection.recv_into(space, min(left, len(space)))
        report(number=number, at=time.monotonic())

    def send(connection, size, at):
        time.sleep(max(at - time.monotonic(), 0.0))
        connection.sendall(bytes(size))

    for line in sys.stdin:
        order = json.loads(line)
        match order["do"]:
            case "listen":
                listening = socket.create_server(("", PORT))
                threading.Thread(target=accept, args=(listening,), daemon=True).start()
                report()
            case "connect":
                connection = socket.create_connection((order["to"], PORT), 10.0)
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # The first answer brings the whole window of the receiver: the window in a handshake is at most 64 KiB.
                connection.sendall(b"?")
                connection.recv(1)
                connections[order["to"]] = connection
                report()
            case "receive":
                job = (order["origin"], order["bytes"], order["number"])
                threading.Thread(target=receive, args=job, daemon=True).start()
                report()
            case "send":
                job = (connections[order["to"]], order["bytes"], order["at"])
                threading.Thread(target=send, args=job, daemon=True).start()
            case "losses":
                text = Path("/proc/net/snmp").read_text().split("\n")
                names, values = (line.split() for line in text if line.startswith("Tcp:"))
                report(lost=int(dict(zip(names, values, strict=True))["RetransSegs"]))


if __name__ == "__main__":
    {"lab": lab, "peer": peer}[sys.argv[1]]()
