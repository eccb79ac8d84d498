"""The checks run as a user's shell does: nothing sets the number of OpenMP's threads for them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

ALLOWED = {
    "tests/test_bare_shell.py": "this test",
    "tests/training/test_worker_pool.py": "reads it in a worker process",
    "tests/user_shell/session.py": "sets it in a child process alone, for the cases 1 and 4",
    "tests/user_shell/test_pages.py": "sets it to see that a session does not inherit it",
    "tests/experiment/test_user_processes.py": "sets it in a child process alone, for the cases 1 and 4",
}


def test_nothing_sets_the_number_of_threads_for_the_checks():
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob(".ci/*"), *ROOT.glob("*.toml"), *ROOT.glob("*.yaml")]
    found = [path for path in files if path.is_file() and "OMP_NUM_THREADS" in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(ROOT)) for path in found} <= ALLOWED.keys()
