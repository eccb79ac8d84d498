"""What tests of every room may ask for."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture
def ctrl_c_raises():
    """As at a terminal; a process that was started in the background ignores SIGINT from the beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
