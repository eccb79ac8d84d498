"""What tests of every room may ask for."""

from __future__ import annotations

import os
import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def _as_wide_as_files_are():
    """Tables that tests read are as wide as in a file, whatever the terminal that started them exports."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture
def ctrl_c_raises():
    """As at a terminal; a process that was started in the background ignores SIGINT from the beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
