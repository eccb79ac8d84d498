"""Builds the site: ``python docs/site/build.py`` writes it to ``build/site``, another folder if one is named.

Strict: a warning (a broken link, a page that is in no list, an unresolved name) fails the build.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gather import ROOT, gather
from sphinx.cmd.build import main as sphinx


def build(site: Path) -> int:
    """Write the site into a folder; the exit code of Sphinx."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        gather(source)
        strict = ["--fail-on-warning", "--keep-going", "--quiet"]
        return sphinx(
            [*strict, "-c", str(Path(__file__).parent), "-d", str(Path(folder) / "doctrees"), str(source), str(site)]
        )


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    code = build(target)
    print(f"{target / 'index.html'}" if code == 0 else "the site was not built without warnings")
    sys.exit(code)
