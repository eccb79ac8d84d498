"""The folder of data sets on this machine."""

import os
from pathlib import Path

from edgefl.files import user_path


def data_root(root: str | None = None) -> Path:
    """The folder of data sets: ``root`` if given, else ``$EDGEFL_DATA``, else the user's cache directory.

    That is ``$XDG_CACHE_HOME/edgefl/data`` or ``~/.cache/edgefl/data``. An empty variable counts as unset.
    """
    if root is not None:
        return user_path(root)
    if from_environment := os.environ.get("EDGEFL_DATA"):
        return user_path(from_environment)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "edgefl" / "data"


def how_to_set_the_root() -> str:
    """The last clause of every message about missing data files."""
    return "set data.root or the environment variable EDGEFL_DATA to the folder that holds the data"
