"""The groups of a scenario's fleet, and the group of each client."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.device_capacity import read_capacities
from edgefl.errors import UserError, locating
from edgefl.fleet.availability import Always, AnyAvailability, Trace, read_trace
from edgefl.fleet.changed_profile import DURATIONS, RATES, in_mode, scaled_compute, scaled_kinds, slower, unconfirmed
from edgefl.fleet.figure import scaled, value
from edgefl.fleet.library import load_profile, note_doubtful
from edgefl.fleet.prices import Prices, TimeZone
from edgefl.fleet.profile import DeviceProfile, OperatorRates
from edgefl.input_file import InputFile, find_input
from edgefl.options import Options
from edgefl.randomness import generator
from edgefl.units import InBaseUnit
from edgefl.validation import first_repeated, validated

SPEED = frozenset({*RATES, *DURATIONS, "operator_rates", "half_rate_pixels"})
"""Figures of ``compute`` that decide the seconds of a step."""

RANK_CORRELATION = 0.84
"""Spearman's rank correlation of CPU score and RAM over the 333 phones of the benchmark."""

# Quantiles 0, 5, …, 100 % of the floating-point CPU score and of RAM in GB over the phones that AI Benchmark listed in
# 2019-20: all 333, and the 220 of 2018-19. We computed these statistics; the list itself is not part of edgefl.
QUANTILES = {
    "all": (
        (105, 218.4, 274.2, 311.4, 392.2, 568, 754.6, 1141.6, 1327, 1445, 1548, 1636.4, 1696.4, 1926, 2035.2, 2154,
         2621.4, 3062.2, 3413.6, 3691.4, 4310),
        (0.5, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7.2, 8, 8, 8, 12),
    ),
    "recent": (
        (343, 604.8, 783.1, 1125.1, 1301.8, 1402, 1454, 1517.7, 1576.8, 1741.1, 1978.5, 2037.5, 2137.4, 2212.7, 2673.8,
         3002.5, 3137.8, 3443.4, 3562.5, 3800.6, 4310),
        (2, 3, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6.6, 8, 8, 8, 8, 8, 12),
    ),
}  # fmt: skip

_SIZES = np.array([0.5, 1, 2, 3, 4, 6, 8, 12])
"""GB of RAM that phones are sold with."""


class Sample(Options):
    """How a group's devices differ from its profile."""

    kind: Literal["phones", "fedscale"] = Field("phones", description="AI Benchmark's phones of 2019-20, or of a file.")
    models: Literal["all", "recent"] = Field("recent", description="all 333 phones, or the 220 of up to two years.")
    devices: int = Field(default=32, ge=1, le=4096, description="Different devices drawn; clients share them evenly.")
    file: InputFile | None = Field(None, description="fedscale: JSON of {computation: ms, communication: kbit/s}.")
    family: str | None = Field(None, description="fedscale: the family of models whose computation is read.")

    @model_validator(mode="after")
    def _file_of_fedscale(self) -> Self:
        if (self.kind == "fedscale") != (self.file is not None):
            raise ValueError("expected a file with kind: fedscale, and none with kind: phones")
        return self

    def milliseconds(self) -> dict[str, float]:
        """The computation of each device in the file; none without a file."""
        return {} if self.file is None else read_capacities(str(find_input(self.file)), "computation", self.family)


def sampled_profiles(profile: DeviceProfile, sample: Sample, draws: np.random.Generator) -> list[DeviceProfile]:
    """Draw ``sample.devices`` devices similar to ``profile``, which represents the median phone, or that of a file.

    Score and RAM are drawn jointly, with ranks of the correlation 0.84 (a Gaussian copula). A device with s times the
    median's score has s times the profile's FLOP/s, √s times its memory bandwidth (an assumption), and 1/s of its
    overheads; training may use the same part of its memory. Devices of a file have its speeds.
    """
    if sample.kind == "fedscale":
        known = sample.milliseconds()
        names, milliseconds = list(known), np.array(list(known.values()))
        return [
            _like(profile, f"{profile.name}-{names[row]}", float(np.median(milliseconds) / milliseconds[row]))
            for row in draws.permutation(len(names))[: sample.devices].tolist()
        ]
    scores, sizes = (np.array(numbers, np.float64) for numbers in QUANTILES[sample.models])
    # The ranks of two normal numbers with correlation r have the correlation 6/π asin(r/2).
    linear = 2 * math.sin(math.pi * RANK_CORRELATION / 6)
    first, second = draws.standard_normal((2, sample.devices))
    second = linear * first + math.sqrt(1 - linear**2) * second
    places = np.linspace(0, 1, len(scores))
    drawn = np.interp(_normal_share(first), places, scores)
    memory = np.interp(_normal_share(second), places, sizes)
    memory = _SIZES[np.abs(memory[:, None] - _SIZES).argmin(axis=1)]
    median = float(np.interp(0.5, places, scores))
    digits = len(str(sample.devices - 1))
    return [
        _like(profile, f"{profile.name}-{number:0{digits}d}", float(score) / median, float(gigabytes) * 2**30)
        for number, (score, gigabytes) in enumerate(zip(drawn, memory, strict=True))
    ]


def _normal_share(numbers: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-number / math.sqrt(2)) for number in numbers])


def _like(profile: DeviceProfile, name: str, speed: float, memory: float | None = None) -> DeviceProfile:
    factors = {
        **dict.fromkeys(("fp32_peak", "fp32_achievable", "core_speed"), speed),
        "memory_bandwidth": math.sqrt(speed),
        **dict.fromkeys(DURATIONS, 1 / speed),
    }
    compute = scaled_compute(profile.compute, factors)
    compute = compute.model_copy(update={"measured_steps": (), "cpu_quota": None})  # of another device
    size = profile.memory
    if memory is not None:
        size = size.model_copy(update={"total": memory, "training": scaled(size.training, memory / size.total)})
    return profile.model_copy(update={"name": name, "compute": compute, "memory": size})


SHARES_TOLERANCE = 1e-6


class FleetGroup(Options):
    """One entry of a scenario's ``fleet:`` list: a group of clients with the same device and link."""

    profile: str | DeviceProfile = Field(description="The name of a profile, the path of a file, or a whole profile.")
    share: float | None = Field(None, gt=0, le=1, description="Part of the clients; shares sum to 1 over all groups.")
    count: int | None = Field(None, gt=0, description="Number of clients, instead of a share.")
    clients: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, min_length=1, description="The numbers of its clients, from 0, instead of a share or a count."
    )
    mode: str | None = Field(None, description="A power mode of the profile; null: the one that it describes.")
    link: str = Field(description="The link that connects each of them, a key of network.links.")
    availability: AnyAvailability = Field(Always(), description="When its devices can take part.")
    dropout: float = Field(0.0, ge=0, le=1, description="Probability that a device drops out while it computes.")
    sample: Sample | None = Field(None, description="How its devices differ; null: all are equal.")
    overrides: dict[str, Any] | None = Field(None, description="Other figures, nested: {memory: {training: 1 GB}}.")
    capacity: float = Field(1.0, gt=0, le=1, description="The largest part of a model that its devices train.")
    prices: Prices | None = Field(None, description="Its own grid and traffic, in place of those of `prices`.")
    timezone: TimeZone | None = Field(None, description="Its clock, for tariffs and availability; null: `start`'s.")
    pace: float = Field(1.0, ge=1e-6, le=1e6, description="Factor on all seconds of computing; 2: twice as slow.")

    @model_validator(mode="after")
    def _share_or_count(self) -> Self:
        found = [name for name in ("share", "count", "clients") if getattr(self, name) is not None]
        if len(found) != 1:
            raise ValueError(f"expected either share or count or clients, found {' and '.join(found) or 'none'}")
        return self


def resolve(group: FleetGroup, *, folder: Path | None = None, field: str | None = None) -> FleetGroup:
    """The same group with its complete profile embedded and overrides applied, so that it depends on no file.

    Relative paths of profile files start at ``folder``; ``field`` is the group's path (``fleet.0``), for messages.
    """
    where = f"{field}." if field else ""
    profile, place = group.profile, "profile"
    try:
        if isinstance(profile, str):
            profile = load_profile(profile, folder=folder)
        place = "availability.file"
        if isinstance(group.availability, Trace):
            read_trace(group.availability.file)
        place = "sample.file"
        if group.sample is not None:
            group.sample.milliseconds()
    except UserError as error:
        # The message names the file and field of what was read; this error adds the scenario's field.
        raise UserError(str(error), field=f"{where}{place}") from None
    changes = dict(group.overrides or {})
    if "modes" in changes:
        profile = _overridden(profile, {"modes": changes.pop("modes")}, f"{where}overrides")
    if group.mode is not None:
        with locating(field=f"{where}mode"):
            profile = in_mode(profile, group.mode)
    if changes:
        profile = _overridden(profile, changes, f"{where}overrides")
    if group.pace != 1:
        profile = validated(DeviceProfile, _data_of(slower(profile, group.pace)), field=f"{where}pace")
    return group.model_copy(update={"profile": profile, "mode": None, "overrides": None, "pace": 1.0})


def _overridden(profile: DeviceProfile, changes: Mapping[str, Any], field: str) -> DeviceProfile:
    """A general figure scales the kinds of operators that have their own."""
    made = validated(DeviceProfile, _merged(_data_of(profile), changes), field=field)
    compute = changes.get("compute", {})
    if not SPEED.isdisjoint(compute):  # nothing confirms the new figures
        made = unconfirmed(made, field)
        note_doubtful(made.model_copy(update={"name": f"{made.name} with {field}"}))
    if "operator_rates" in compute:
        return made
    before, after = profile.compute, made.compute
    factors = {
        name: value(getattr(after, name)) / value(getattr(before, name))
        for name in OperatorRates.model_fields
        if name in compute and value(getattr(before, name)) > 0
    }
    return made.model_copy(update={"compute": scaled_kinds(after, factors)})


def _data_of(profile: DeviceProfile) -> dict[str, Any]:
    data: dict[str, Any] = InBaseUnit.in_all(profile.model_dump(mode="json"))
    return data


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, change in changes.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(change, Mapping)
        merged[key] = _merged(inner, change) if both else change  # type: ignore[arg-type]
    return merged


@dataclass(frozen=True)
class FleetAssignment:
    """The device and link of each client, as arrays: a client is a row."""

    profiles: tuple[DeviceProfile, ...]  # of each group; a group with sampled devices counts as several groups
    links: tuple[str, ...]  # the name of each group's link
    group: NDArray[np.int32]  # the group of each client, an index into both, shape [clients]
    availability: tuple[AnyAvailability, ...] = ()  # of each group's devices; empty: always
    dropout: tuple[float, ...] = ()  # for each group the probability that a device drops out of a round; empty: 0
    # for each group the largest part of a model that its devices train; empty: the whole model
    capacity: tuple[float, ...] = ()
    prices: tuple[Prices | None, ...] = ()  # of each group's own
    timezone: tuple[str | None, ...] = ()  # of each group
    start: datetime | None = None  # when the run begins, if its scenario says so

    def profile_of(self, client: int) -> DeviceProfile:
        return self.profiles[int(self.group[client])]

    def link_names(self) -> NDArray[np.str_]:
        """Shape ``[clients]``."""
        return np.array(self.links, np.str_)[self.group]


def assign(
    groups: Sequence[FleetGroup], clients: int, seed: int, *, folder: Path | None = None, start: str | None = None
) -> FleetAssignment:
    """Distribute groups by exact counts (largest remainder, earlier first), the other clients by the seed alone."""
    counts = group_counts(groups, clients)
    resolved = [resolve(group, folder=folder, field=f"fleet.{index}") for index, group in enumerate(groups)]
    kinds: list[tuple[DeviceProfile, FleetGroup]] = []
    numbers: list[NDArray[np.int32]] = []
    of_client = np.full(clients, -1, np.int32)
    for index, (group, count) in enumerate(zip(resolved, counts, strict=True)):
        profile = group.profile
        assert isinstance(profile, DeviceProfile)
        draws = generator(seed, "devices", index)
        profiles = [profile] if group.sample is None else sampled_profiles(profile, group.sample, draws)
        own = (len(kinds) + np.arange(count) % len(profiles)).astype(np.int32)
        if group.clients is None:
            numbers.append(own)
        else:
            of_client[list(group.clients)] = own
        kinds += [(profile, group) for profile in profiles]
    if numbers:
        of_client[of_client < 0] = generator(seed, "fleet").permutation(np.concatenate(numbers))
    return FleetAssignment(
        profiles=tuple(profile for profile, _ in kinds),
        links=tuple(group.link for _, group in kinds),
        group=of_client,
        availability=tuple(group.availability for _, group in kinds),
        dropout=tuple(group.dropout for _, group in kinds),
        capacity=tuple(group.capacity for _, group in kinds),
        prices=tuple(group.prices for _, group in kinds),
        timezone=tuple(group.timezone for _, group in kinds),
        start=None if start is None else datetime.fromisoformat(start),
    )


def group_counts(groups: Sequence[FleetGroup], clients: int) -> NDArray[np.int64]:
    """The number of clients in each group, shape ``[groups]``, summing to ``clients``; raises UserError as `assign`."""
    if not groups:
        raise UserError("expected at least one group, found an empty list", field="fleet")
    shares = [group.share for group in groups if group.share is not None]
    if shares and len(shares) < len(groups):
        raise UserError("expected share in every group, or count or clients in every group, found both", field="fleet")
    if not shares:
        named = [client for group in groups for client in group.clients or ()]
        if (repeated := first_repeated(named)) is not None or max(named, default=0) >= clients:
            found = f"found {max(named) if repeated is None else f'{repeated[0]} twice'}"
            raise UserError(f"expected each of the clients 0 to {clients - 1} in one group, {found}", field="fleet")
        counts = np.array([len(group.clients or ()) or group.count for group in groups], np.int64)
        if counts.sum() != clients:
            rest = f", without client {min({*range(clients)} - {*named})}" if len(named) == counts.sum() else ""
            raise UserError(f"expected counts that sum to {clients} clients, found {counts.sum()}{rest}", field="fleet")
        return counts
    total = sum(shares)
    if abs(total - 1) > SHARES_TOLERANCE:
        raise UserError(f"expected shares that sum to 1, found {total:.6g}", field="fleet")
    exact = np.array(shares) / total * clients
    counts = np.floor(exact).astype(np.int64)
    # Rounded, so that equal shares stay equal and the earlier group comes first.
    remainders = np.round(exact - counts, 9)
    left_over = clients - int(counts.sum())
    counts[np.argsort(-remainders, kind="stable")[:left_over]] += 1
    return counts
