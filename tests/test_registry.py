"""A family of parts is found whole, whoever asks first."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from edgefl.errors import UserError
from edgefl.registry import Registry

PART = """
import time
from {package} import FAMILY

time.sleep(0.05)
FAMILY.register("{name}")("{name}'s part")
"""


@pytest.fixture
def family(tmp_path, monkeypatch):
    """A family of three parts, each of which takes a while to import."""
    folder = tmp_path / "slow_family"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from edgefl.registry import Registry\n\n"
        "FAMILY = Registry('part', package='slow_family', group='edgefl.no_such_group')\n"
    )
    for name in ("one", "three", "two"):
        (folder / f"{name}.py").write_text(PART.format(package="slow_family", name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    import slow_family

    yield slow_family.FAMILY
    for module in [name for name in sys.modules if name.partition(".")[0] == "slow_family"]:
        del sys.modules[module]


def test_threads_that_ask_while_it_is_imported_find_every_part(family):
    start = threading.Barrier(4)

    def ask(place):
        start.wait()
        time.sleep(0.03 * place)
        return family.names(), family["two"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [(["one", "three", "two"], "two's part")] * 4


def test_a_name_that_nobody_has_is_answered_with_the_nearest(family):
    with pytest.raises(UserError, match=r"unknown part 'tree'.*'three'"):
        family["tree"]


def test_a_name_is_given_once():
    parts = Registry("part", package="email", group="edgefl.no_such_group")
    assert parts.register("x")("first") == "first"
    with pytest.raises(ValueError, match="two parts are called 'x'"):
        parts.register("x")("second")
