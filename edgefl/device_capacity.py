"""FedScale's ``client_device_capacity``: the speed and the link of half a million phones, one row for each."""

import math
from typing import Any, Literal

from edgefl.errors import UserError, nearest
from edgefl.files import read_json

PICKLE = "python -c \"import json, pickle; json.dump(pickle.load(open('FILE', 'rb')), open('FILE.json', 'w'))\""


def read_capacities(
    file: str, what: Literal["computation", "communication"], family: str | None = None
) -> dict[str, float]:
    """One figure of each device: milliseconds of computation for a sample, or kbit/s of its link.

    The file is JSON: a list, or a mapping from devices, of ``{computation: 27.0, communication: 5648.1}``. For several
    families of models, computation is a mapping, of which ``family`` is read.
    """
    try:
        data = read_json(file)
    except UserError as error:
        raise UserError(f"{error.message}; FedScale's pickle becomes JSON by: {PICKLE}", file=file) from None
    devices = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
    if not devices:
        raise UserError("expected a list or a mapping of devices, found none", file=file)
    return {str(name): _figure(device, what, family, file, str(name)) for name, device in devices.items()}


def _figure(device: Any, what: str, family: str | None, file: str, name: str) -> float:
    figure = device.get(what) if isinstance(device, dict) else None
    if what == "computation" and isinstance(figure, dict):
        if family not in figure:
            hint = f"; {nearest(family, figure)}" if family else f", one of: {', '.join(figure)}"
            raise UserError(f"expected the family of models (family){hint}", file=file, field=f"{name}.{what}")
        figure = figure[family]
    if isinstance(figure, bool) or not isinstance(figure, int | float) or not 0 < figure < math.inf:
        message = "expected {computation: milliseconds, communication: kbit/s}, both above 0"
        raise UserError(message, file=file, field=name)
    return float(figure)
