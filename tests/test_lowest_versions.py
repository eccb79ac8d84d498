"""The rooms of models, methods, networks and devices pass with the oldest dependencies that pyproject.toml allows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("network", "fleet", "scheduling", "methods", "cost", "models", "data")


@pytest.mark.release
def test_the_lowest_versions(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    install = ["-m", "uv", "pip", "install", "--quiet", "--python", python, "--resolution", "lowest-direct"]
    subprocess.run([python, *install, "-e", f"{ROOT}[test]"], check=True)
    rooms = [ROOT / "tests" / room for room in ROOMS]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rooms],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
