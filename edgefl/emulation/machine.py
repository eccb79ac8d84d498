"""What this machine can do for an emulation, and what is missing."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from edgefl.cpu_quota import CpuQuota
from edgefl.errors import UserError
from edgefl.hardware import cores

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
    """What an emulation uses; ``detail``: a version, or why it does not work. If ``needed``, none runs without it."""

    what: str
    works: bool
    detail: str
    needed: bool = True


@cache
def in_namespaces() -> tuple[str, ...] | None:
    """The command that runs as root of new network and process namespaces; None where nothing works."""
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
    else:
        found.append(Finding("namespaces", True, "in a user namespace" if _USER[0] in start else "as root"))
    if all(each.works for each in found):  # else nothing is known of the kernel
        found += _probed(start or ())
    try:
        with CpuQuota():
            found.append(Finding("cpu quota", True, "control groups can limit processors", needed=False))
    except UserError as error:
        found.append(Finding("cpu quota", False, error.message, needed=False))
    return [*found, Finding("cores", True, str(cores()), needed=False)]


def missing(findings: Sequence[Finding]) -> str | None:
    """One sentence about what this machine lacks for real links, or None.

    >>> missing([Finding("tc", False, "not found; part of the package iproute2")])
    'this machine cannot make real links: tc: not found; part of the package iproute2'
    """
    lacks = [f"{each.what}: {each.detail}" for each in findings if each.needed and not each.works]
    delays = [each for each in findings if each.what in {"netem", "tun"}]
    if delays and not any(each.works for each in delays):
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


def _probed(start: Sequence[str]) -> list[Finding]:
    script = "".join(
        f"{command} >/dev/null 2>&1 || echo {feature}\n"
        for feature, commands in _PROBES.items()
        for command in commands
    )
    done = subprocess.run([*start, "sh", "-c", script], check=False, capture_output=True, text=True)
    refused = set(done.stdout.split())
    return [
        Finding(
            feature,
            feature not in refused,
            "not in this kernel, or not allowed" if feature in refused else "works",
            needed=feature not in {"netem", "tun"},
        )
        for feature in _PROBES
    ]
