"""What this machine can do for an emulation, and what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import NamedTuple

_NAMESPACES = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_USER = ("--user", "--map-root-user")


class Finding(NamedTuple):
    """One thing that an emulation uses.

    Attributes:
        what: its name.
        works: whether it is there.
        detail: a version, a number, or why it does not work.
        needed: whether there is no emulation without it.
    """

    what: str
    works: bool
    detail: str
    needed: bool = True


@cache
def in_namespaces() -> tuple[str, ...] | None:
    """The beginning of a command that runs as root of new user, network and process namespaces.

    Without a user namespace where the system refuses one and this user is root; None where nothing works.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    ways = [_USER, ()] if os.geteuid() == 0 else [_USER]
    for user in ways:
        command = (unshare, *user, *_NAMESPACES)
        if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
            return command
    return None
