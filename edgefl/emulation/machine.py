"""What this machine can do for an emulation, and what is missing."""

import math
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import NamedTuple

import numpy as np

from edgefl.cpu_quota import CpuQuota
from edgefl.emulation.routing import Routing
from edgefl.emulation.shaping import PAYLOAD_BYTES
from edgefl.emulation.wiring import LinkSettings, Wiring
from edgefl.errors import UserError

_NAMESPACES = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_USER = ("--user", "--map-root-user")

_PROBES = {
    "veth": ["ip link add name a type veth peer name b"],
    "htb": ["tc qdisc add dev lo root handle 2: htb", "tc class add dev lo parent 2: classid 2:1 htb rate 1mbit"],
    "tbf": ["tc qdisc add dev lo parent 2:1 handle 3: tbf rate 1mbit burst 2000 limit 10"],
    "pfifo": ["tc qdisc add dev lo parent 3:1 pfifo limit 10"],
    "u32": ["tc filter add dev lo parent 2: protocol ip u32 match ip src 10.0.0.1/32 classid 2:1"],
    "netem": ["tc qdisc del dev lo root", "tc qdisc add dev lo root netem delay 1ms"],
    "tun": ["ip tuntap add dev c mode tun"],
}
"""Commands, tried one after another in namespaces of their own, that need a feature of the kernel."""


_SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")


class Finding(NamedTuple):
    """One thing that an emulation uses; ``detail`` is a version, a number, or why it does not work.

    There is no emulation without a thing that is ``needed``.
    """

    what: str
    works: bool
    detail: str
    needed: bool = True


@cache
def in_namespaces() -> tuple[str, ...] | None:
    """The beginning of a command that runs as root of new network and process namespaces; None where nothing works.

    In a user namespace where the system allows it; else this user must be root.
    """
    return next((command for command in _ways() if not _refused([*command, "true"])), None)


def check() -> list[Finding]:
    """What an emulation uses, and whether this machine has it."""
    found = []
    for program in ("ip", "tc", "unshare"):
        path = _found(program)
        package = "util-linux" if program == "unshare" else "iproute2"
        found.append(Finding(program, path is not None, path or f"not found; part of the package {package}"))
    start = in_namespaces()
    if start is None:
        reason = _refused([*_ways()[0], "true"]) if _ways() else "no program unshare"
        found.append(Finding("namespaces", False, reason))
        return [*found, *_processors()]
    found.append(Finding("namespaces", True, "in a user namespace" if _USER[0] in start else "as root"))
    # Without the programs nothing is known of the kernel.
    refusals = _probed(start) if all(each.works for each in found) else {}
    for feature, refusal in refusals.items():
        needed = feature not in {"netem", "tun"}
        found.append(Finding(feature, not refusal, refusal or "works", needed))
    return [*found, *_processors()]


def missing(findings: Sequence[Finding], *, latencies: bool) -> str | None:
    """One sentence about what this machine lacks for real links, or None.

    >>> missing([Finding("tc", False, "not found; part of the package iproute2")], latencies=False)
    'this machine cannot make real links: tc: not found; part of the package iproute2'
    """
    lacks = [f"{each.what}: {each.detail}" for each in findings if each.needed and not each.works]
    delays = [each for each in findings if each.what in {"netem", "tun"}]
    if latencies and delays and not any(each.works for each in delays):
        lacks.append("latencies need netem or tun, " + " and ".join(f"{each.what}: {each.detail}" for each in delays))
    return f"this machine cannot make real links: {'; '.join(lacks)}" if lacks else None


def has_netem() -> bool:
    """True if the kernel delays packets itself; asked in the present network namespace, on its loopback device."""
    works = not _refused(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    if works:
        _refused(["tc", "qdisc", "del", "dev", "lo", "root"])
    return works


def _search_path() -> list[str]:
    """Shells of users without root often leave out the system's own folders."""
    return [*os.environ.get("PATH", os.defpath).split(os.pathsep), *_SYSTEM_FOLDERS]


def _found(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join(_search_path()))


def _ways() -> list[tuple[str, ...]]:
    unshare = _found("unshare")
    if unshare is None:
        return []
    env = ("env", f"PATH={os.pathsep.join(_search_path())}")
    if os.geteuid() != 0:
        return [(*env, unshare, *_USER, *_NAMESPACES)]
    # Packets that wait for a processor are late, so they go first where this user may say so.
    nice = _found("nice")
    first = (nice, "-n", "-10") if nice is not None else ()
    return [(*env, *first, unshare, *user, *_NAMESPACES) for user in (_USER, ())]


def _refused(command: Sequence[str]) -> str:
    """The reason why a command failed, as one line; an empty text if it did not."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}"


def _probed(start: Sequence[str]) -> dict[str, str]:
    """For each feature of the kernel, why it cannot be used, or an empty text."""
    script = "".join(
        f"{command} >/dev/null 2>&1 || echo {feature}\n"
        for feature, commands in _PROBES.items()
        for command in commands
    )
    done = subprocess.run([*start, "sh", "-c", script], check=False, capture_output=True, text=True)
    refused = set(done.stdout.split())
    return {feature: "not in this kernel, or not allowed" if feature in refused else "" for feature in _PROBES}


def _processors() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    refusal = _no_quota()
    return [
        Finding("cpu quota", not refusal, refusal or "control groups can limit processors", needed=False),
        Finding("cores", True, str(cores), needed=False),
    ]


def _no_quota() -> str:
    """The reason why this process cannot limit the processors of a control group, or an empty text."""
    try:
        with CpuQuota():
            return ""
    except UserError as error:
        return error.message


USED_PART = 0.5
"""The part of the packet rates that may be used: the processes at the nodes need processors too."""
ACKNOWLEDGEMENTS = 0.5
"""Acknowledgements for each packet with data; a receiver answers at least every second packet."""

DELAYED, LINKS = 30_000.0, 100_000.0
"""Packets a second that the process which delays packets carries, and those that the kernel carries per processor."""


class PacketRates(NamedTuple):
    """Packets a second, with their acknowledgements."""

    delayed: float  # those that the process which delays packets carries
    links: float  # those that the kernel carries, over all links: each packet counts on each link


class Dilation(NamedTuple):
    """A dilation, and why it was chosen."""

    factor: float  # real seconds for one second of the scenario
    needed: PacketRates  # packets a second at this dilation, when as many links as possible are busy
    carried: PacketRates  # packets a second of this machine

    def __str__(self) -> str:
        needed, carried = self.needed, self.carried
        return (
            f"dilation {self.factor:g}: at most {needed.links:,.0f} packets/s cross the links (this machine carries"
            f" {carried.links:,.0f}), and {needed.delayed:,.0f} have a latency (this machine delays"
            f" {carried.delayed:,.0f}); at most {100 * USED_PART:.0f} % of each may be used"
        )


def choose_dilation(wiring: Wiring, settings: LinkSettings, carried: PacketRates) -> Dilation:
    """The least of 1, 2, 5, 10, 20, 50, … at which the links need at most half of what this machine carries."""
    for factor in _factors():
        needed = packet_rates(wiring, replace(settings, dilation=factor))
        if all(need <= USED_PART * rate for need, rate in zip(needed, carried, strict=True)):
            break
    return Dilation(factor, needed, carried)


def packet_rates(wiring: Wiring, settings: LinkSettings) -> PacketRates:
    """The most packets a real second that cross the links at their peak capacities, with acknowledgements.

    The most over all ways to share the links: a linear program over the rates of all senders and receivers.
    """
    from scipy.optimize import linprog

    pairs = list(wiring.routes)
    finite = [link for link in wiring.links if math.isfinite(link.peak)]
    crossed = np.array([[link.number in wiring.routes[pair] for pair in pairs] for link in finite], dtype=float)
    for pair in pairs:
        if all(math.isinf(link.peak) for link in wiring.route(*pair)):
            raise UserError(f"no link from {pair[0]} to {pair[1]} has a finite capacity, so no dilation is enough")
    bytes_per_second = np.array([link.peak for link in finite]) * settings.efficiency / settings.dilation / 8.0

    def most(packets: list[float]) -> float:
        gain = np.array(packets)
        return float(gain @ linprog(-gain, A_ub=crossed, b_ub=bytes_per_second / PAYLOAD_BYTES).x)

    routing = Routing(wiring, settings)
    # The process that delays packets handles what a sender hands over as one at once; queues split it.
    delayed = [
        1.0 / routing.segments(pair[0]) + ACKNOWLEDGEMENTS if any(link.latency for link in wiring.route(*pair)) else 0.0
        for pair in pairs
    ]
    return PacketRates(most(delayed), most([len(wiring.route(*pair)) * (1.0 + ACKNOWLEDGEMENTS) for pair in pairs]))


def _factors() -> Iterator[float]:
    for power in count():
        for first in (1, 2, 5):
            yield float(first * 10**power)


def assumed_rates(*, netem: bool) -> PacketRates:
    """Packets a second that this machine carries: what a small processor did, with some left for its programs.

    Where the kernel delays packets (netem), no process sets a limit.
    """
    return PacketRates(math.inf if netem else DELAYED, LINKS * (os.cpu_count() or 1))
