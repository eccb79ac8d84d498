"""``edgefl profile derive`` and ``guess``: the profile of a board from that of another one."""

from edgefl.cli.arguments import argument, option
from edgefl.cli.printing import say
from edgefl.cli.profile import Output, app, save_profile
from edgefl.errors import UserError, locating


@app.command("derive")
def derive_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    base: str = argument(..., "The profile with measured or fitted rates: a name, or a path."),
    device: str = argument(..., "The profile whose memory, power and peak are kept."),
    products: float = option(..., "FLOP/s of large products relative to the base: Linpack's ratio.", min=1e-6, max=1e6),
    memory: float = option(..., "Memory bandwidth relative to the base.", min=1e-6, max=1e6),
    scalar: float = option(
        ..., "Speed without vector units: ratio of clock x instructions per cycle.", min=1e-6, max=1e6
    ),
    error: float = option(0.5, "Relative error for which bounds are given.", min=0, max=10),
) -> None:
    """Derive the rates of a device from those of a similar one, by three ratios of their speeds."""
    from edgefl.fleet import load_profile
    from edgefl.profiling.derived_profile import Ratios, derived_profile

    known, similar, ratios = load_profile(base), load_profile(device), Ratios(products, scalar, memory)
    try:
        data = derived_profile(known, similar, ratios, error)
    except UserError as failed:
        raise UserError(f"{similar.name} cannot have these ratios: {failed.message}", field=failed.field) from None
    save_profile(data, output)
    say(f"Written: {output}")


@app.command("guess")
def guess_profile(  # noqa: PLR0917  (the command's options)
    output: Output,
    cores: int = option(..., "Its cores.", min=1, max=1024),
    ghz: float = option(..., "The clock of its cores, GHz.", min=0.01, max=20),
    gb_per_second: float = option(..., "The theoretical bandwidth of its memory, GB/s.", min=0.01, max=1e4),
    watts: float = option(..., "Its watts under full load.", min=0.01, max=1e4),
    ram: str | None = option(None, "Its memory, such as '4 GiB'.", unset="1 GiB"),
    base: str = option("raspberry-pi-4", "The board with measured step times whose rates are scaled.", "--from"),
) -> None:
    """Guess the profile of a board from its data sheet, with bounds of a factor of 3, until its steps are measured."""
    from edgefl.fleet import load_profile
    from edgefl.profiling.derived_profile import DataSheet, guessed_profile
    from edgefl.units import parse, without_unit

    if ram is not None and without_unit(ram):
        raise UserError(f"expected a size with a unit, such as '4 GiB', found '{ram}'", file="--ram")
    with locating(file="--ram"):
        memory = None if ram is None else parse(ram, "bytes")
    with locating(file=f"--from {base}"):
        known = load_profile(base)
        data = guessed_profile(known, output.stem, DataSheet(cores, ghz, gb_per_second), watts, memory)
    save_profile(data, output)
    say(f"Written: {output}. Its seconds are a guess, a factor of 3 either way; `edgefl profile script` measures it.")
