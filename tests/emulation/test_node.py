"""Two nodes on loopback: one process listens there, since each node has the port of its namespace for itself."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from edgefl.emulation.node import Node
from edgefl.emulation.nodes import EmulationFailed, Nodes, python


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Nodes]:
    """The connection to a node's process that sends to itself."""
    (tmp_path / "content").write_bytes(bytes(range(256)) * 16)
    nodes = Nodes(tmp_path / "coordinator")
    # A user's own file, which must not stand in for the module of the standard library.
    (tmp_path / "struct.py").write_text("raise ImportError")
    process = subprocess.Popen([*python("node"), "a", str(tmp_path / "coordinator")], cwd=tmp_path)
    try:
        nodes.wait_for("node", "a", 20.0)
        yield nodes
    finally:
        nodes.close()
        process.wait(10.0)


def send(node: Nodes, flow: int, bytes: int, content: Path, round_trips: int | None = 0) -> None:
    node.order("a", do="send", flow=flow, to="127.0.0.1", bytes=bytes, content=str(content), round_trips=round_trips)


def test_a_transfer_arrives_whole_and_says_when(node: Nodes, tmp_path: Path) -> None:
    before = time.monotonic()
    send(node, 7, 1_000_003, tmp_path / "content")
    report = node.wait_for("arrived", 7, 20.0)
    assert before <= report["at"] <= time.monotonic()


def test_an_open_connection_is_used_again(node: Nodes, tmp_path: Path) -> None:
    node.order("a", do="open", to="127.0.0.1", warm=100_000)
    assert node.wait_for("opened", "127.0.0.1", 20.0)["of"] == "a"
    for flow in (1, 2):
        send(node, flow, 10_000, tmp_path / "content", round_trips=None)
        node.wait_for("arrived", flow, 20.0)


def test_a_stopped_transfer_tells_its_bytes_and_is_never_reported_as_arrived(node: Nodes, tmp_path: Path) -> None:
    send(node, 1, 1 << 40, tmp_path / "content")
    moving = 0
    while not moving:
        node.order("a", do="progress", flow=1)
        moving = node.wait_for("progress", 1, 20.0)["bytes"]
    node.order("a", do="stop", flow=1)
    node.order("a", do="abort", flow=1)
    assert node.wait_for("progress", 1, 20.0)["bytes"] >= moving
    send(node, 2, 10_000, tmp_path / "content")
    node.wait_for("arrived", 2, 20.0)
    assert not any("arrived" in report or "failed" in report for report in node.reports)


class Reports:
    """Takes a node's reports, of which the test reads none."""

    def write(self, line: bytes) -> None:
        pass


def test_an_aborted_transfer_that_the_kernel_has_whole_is_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "content").write_bytes(b"0123456789")

    async def play(receiver: socket.socket) -> None:
        orders = asyncio.StreamReader()
        obeying = asyncio.create_task(Node("a", cast("asyncio.StreamWriter", Reports())).obey(orders))
        order = {"flow": 1, "to": "127.0.0.1", "bytes": 10, "content": str(tmp_path / "content"), "round_trips": 0}
        orders.feed_data(json.dumps({"do": "send", **order}).encode() + b"\n")
        connection, _ = await asyncio.to_thread(receiver.accept)
        with connection:
            connection.settimeout(20.0)
            # A head and the bytes: the sender has nothing more to do.
            with connection.makefile("rb") as stream:
                assert len(await asyncio.to_thread(stream.read, 26)) == 26
            orders.feed_data(b'{"do": "abort", "flow": 1}\n')
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(connection.recv, 1)
        orders.feed_eof()
        await obeying

    with socket.create_server(("127.0.0.1", 0)) as receiver:
        monkeypatch.setattr("edgefl.emulation.node.PORT", receiver.getsockname()[1])
        receiver.settimeout(20.0)
        asyncio.run(play(receiver))


def test_a_receiver_that_is_not_there_is_reported(node: Nodes, tmp_path: Path) -> None:
    node.order("a", do="send", flow=1, to="127.255.255.255", bytes=1, content=str(tmp_path / "content"), round_trips=0)
    assert "unreachable" in node.wait_for("failed", 1, 20.0)["reason"]


def test_a_process_that_is_gone_is_reported(node: Nodes) -> None:
    with pytest.raises(EmulationFailed, match="process of b has ended"):
        node.order("b", do="progress", flow=0)
    with pytest.raises(EmulationFailed, match="no process reported its arrived"):
        node.wait_for("arrived", 0, 0.05)


def test_a_process_that_was_killed_before_its_greeting_was_read_gets_no_orders(node: Nodes, tmp_path: Path) -> None:
    def greets(life: int) -> socket.socket:
        process = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        process.connect(str(tmp_path / "coordinator"))
        process.sendall(b'{"node": "b", "life": %d}\n' % life)
        process.settimeout(20.0)
        return process

    with greets(0) as killed, greets(2) as successor:
        node.expect_successor("b")
        node.order("b", do="send")
        node.expect_successor("b")
        node.order("b", do="open")
        assert node.wait_for("node", "b", 20.0)["life"] == 2
        assert successor.recv(1000) == b'{"do": "open"}\n'
        killed.setblocking(False)
        with pytest.raises(BlockingIOError):
            killed.recv(1000)


def test_waiting_for_a_report_ends_with_a_process(node: Nodes, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(str(tmp_path / "coordinator"))
        other.sendall(b'{"node": "b"}\n')
        node.wait_for("node", "b", 20.0)
    with pytest.raises(EmulationFailed, match="process of b has ended"):
        node.wait_for("arrived", 0, 20.0)
