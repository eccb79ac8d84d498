"""The privacy loss of a run, after each round: of all clients alike, or by client where participation is unequal."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.privacy.accountants import Mechanism, Phases, epsilon, noise_for, phases_of
from edgefl.privacy.differential_privacy import DifferentialPrivacy


@dataclass(frozen=True)
class Exposure:
    """How often, and with which probability, each client or example of a run is in a sum with noise.

    ``samples`` are the training images of each client; ``uniform``: all cohorts are equally likely.
    """

    dp: DifferentialPrivacy
    clients: int
    cohort: int
    samples: Sequence[int]
    local: LocalOptions
    uniform: bool = True

    @property
    def alike(self) -> bool:
        """True if all clients have the same loss in each round."""
        return self.dp.kind == "central" and self.uniform

    @property
    def accountant(self) -> str:
        fixed = self.alike and self.dp.sampling == "fixed" and self.cohort < self.clients
        return self.dp.accountant or ("rdp" if fixed else "pld")

    @property
    def adjacency(self) -> str:
        if self.dp.kind == "local":
            return "replace one client's update"
        one = "client" if self.dp.of_clients else "example"
        if self.dp.sampling == "poisson":
            return f"add or remove one {one}"
        return f"replace one {one} by one that adds nothing"

    def in_a_round(self, noise: float, available: int) -> Mechanism:
        """What happens to each client in a round in which so many could be drawn."""
        if self.dp.sampling == "fixed":
            rate = min(1.0, self.cohort / available)
            return Mechanism(noise, rate, available if rate < 1 else 0)
        rate = self.cohort / self.clients
        return Mechanism(noise, rate / (1 - (1 - rate) ** self.clients) if rate < 1 else 1.0)

    def of_a_client(self, noise: float, client: int, steps: int) -> tuple[Mechanism, int]:
        """What happens to a client, or to each of its examples, in one participation."""
        if self.dp.of_clients:
            # Any update may take the place of any other, so the sum changes by twice the clipping norm.
            return Mechanism(noise / 2 if self.dp.kind == "local" else noise), 1
        samples = self.samples[client]
        if self.dp.sampling == "poisson":
            return Mechanism(noise, min(1.0, self.local.step_samples / samples)), steps
        return Mechanism(noise), -(-steps // max(1, self.local.steps_of_an_epoch(samples)))  # once in each pass

    def planned(self, noise: float, rounds: int) -> Phases:
        """All rounds, for the client with the greatest loss if it takes part in each of them."""
        if self.alike:
            return phases_of([(self.in_a_round(noise, self.clients), rounds)])
        client = min(range(self.clients), key=lambda client: self.samples[client])
        mechanism, count = self.of_a_client(noise, client, self.local.steps_for(self.samples[client]))
        return phases_of([(mechanism, count * rounds)])

    def noise(self, rounds: int) -> float:
        """σ: that of the options, or the least with which all rounds stay within ε."""
        if self.dp.epsilon is None:
            return self.dp.noise or 0.0
        delta, who = self.dp.delta, self.accountant
        return noise_for(self.dp.epsilon, lambda noise: epsilon(self.planned(noise, rounds), delta, who))


class Ledger:
    """The loss of one run so far."""

    def __init__(self, exposure: Exposure, noise: float) -> None:
        self.exposure, self.noise = exposure, noise
        self._counts: defaultdict[int, Counter[Mechanism]] = defaultdict(Counter)  # -1: of all clients
        self._available = exposure.clients

    @property
    def accounts(self) -> bool:
        return self.exposure.accountant != "none"

    def round_closed(self, available: int | None, took_part: Iterable[tuple[int, int]]) -> float:
        """ε after a round in which so many clients could be drawn, and these trained so many steps each."""
        if available is not None:
            self._available = available
        if self.exposure.alike:
            self._counts[-1][self.exposure.in_a_round(self.noise, self._available)] += 1
        else:
            for client, steps in took_part:
                mechanism, count = self.exposure.of_a_client(self.noise, client, steps)
                self._counts[client][mechanism] += count
        return self._most(phases_of(counts.items()) for counts in self._counts.values())

    def ahead(self) -> float:
        """ε after another round like the last one, in which those with the largest loss take part again."""
        exposure = self.exposure
        if exposure.alike:
            more = exposure.in_a_round(self.noise, self._available)
            return self._epsilon(phases_of((self._counts[-1] + Counter({more: 1})).items()))
        found = [exposure.planned(self.noise, 1)]
        for client, counts in self._counts.items():
            steps = exposure.local.steps_for(exposure.samples[client])
            mechanism, count = exposure.of_a_client(self.noise, client, steps)
            found.append(phases_of((counts + Counter({mechanism: count})).items()))
        return self._most(found)

    def written(self) -> dict[str, Any]:
        """As data of ``summary.json``."""
        exposure, dp = self.exposure, self.exposure.dp
        found: dict[str, Any] = {name: getattr(dp, name) for name in ("kind", "sampling", "delta")}
        found |= {"adjacency": exposure.adjacency, "accountant": exposure.accountant, "noise": self.noise}
        if not exposure.alike and self.accounts:
            by_client = {client: self._epsilon(phases_of(each.items())) for client, each in self._counts.items()}
            found["by_client"] = {str(client): by_client[client] for client in sorted(by_client)}
        return found

    def _epsilon(self, phases: Phases) -> float:
        return epsilon(phases, self.exposure.dp.delta, self.exposure.accountant)

    def _most(self, all_phases: Iterable[Phases]) -> float:
        """The largest ε; phases of one mechanism with both less rate and fewer steps than others are left out."""
        kept: list[Phases] = []
        for phases in sorted(set(all_phases), key=lambda each: (-each[0][0].rate, -each[0][1])):
            if len(phases) > 1 or all(len(each) > 1 or each[0][1] < phases[0][1] for each in kept):
                kept.append(phases)
        return max(map(self._epsilon, kept), default=0.0)
