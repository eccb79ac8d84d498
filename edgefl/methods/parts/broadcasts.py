"""The vectors that a server broadcasts must be in the downlink with all their bytes, so that none is sent for free."""

from collections import Counter

import torch

from edgefl.errors import WrongAnswer
from edgefl.methods.parts.payload import Downlink, ModelSizes
from edgefl.methods.recipe import Method
from edgefl.models.layout import FLOAT_BYTES

_PARAMETERS = 997
"""Size of the model for which the server state is made once, to find which vectors are as long as the model."""


class Broadcasts:
    """The broadcasts of a server update, and the bytes of each, given the ``sizes`` in the downlink's codec."""

    def __init__(self, method: Method, sizes: ModelSizes) -> None:
        server = method.server
        self._server, self._payload = type(server).__name__, type(method.payload).__name__
        carriers = {vector: server.carried_by.get(vector, vector) for vector in server.broadcasts}
        self._carried = {vector: part for vector, part in carriers.items() if part is not None}
        lengths = _lengths(method) if self._carried else {}
        self._bytes = {
            vector: sizes.model_bytes if lengths.get(vector) in (None, _PARAMETERS) else FLOAT_BYTES * lengths[vector]
            for vector in self._carried
        }

    def check(self, downlink: Downlink, round: int, held: int | None) -> None:
        """Check one downlink: each vector is in it, unless in round 0 or for a client that holds a model."""
        sent: Counter[str] = Counter()
        for part in downlink.parts:
            sent[part.name] += part.bytes
        for vector, carrier in self._carried.items():
            needed, found = self._bytes[vector], sent[carrier]
            if found >= needed or (not found and (round == 0 or held is not None)):
                continue
            sends = f"sends {found} of its {needed} bytes in" if found else "sends no"
            raise WrongAnswer(
                f"{self._server} broadcasts '{vector}', but {self._payload} {sends} part '{carrier}' in round "
                f"{round + 1}, so its bytes would not be counted (parts: {', '.join(sorted(+sent)) or 'none'}); return "
                f"Part('{carrier}', sizes.model_bytes, round) from downlink, or name the part that carries it in "
                f"carried_by of {self._server}"
            )


def _lengths(method: Method) -> dict[str, int]:
    """For a model of :data:`_PARAMETERS` parameters."""
    try:
        return {name: vector.numel() for name, vector in method.server.begin(torch.zeros(_PARAMETERS)).items()}
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  (the run calls it again and ends with this error)
        return {}
