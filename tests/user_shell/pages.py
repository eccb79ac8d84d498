"""What README and docs show: their commands, what the pages say that these print, and their Python."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

PROGRAMS = ("edgefl", "python", "pip", "pytest")
"""Whatever begins a documented command. A block without a language whose lines begin otherwise fails the tests."""

NO_COMMANDS = ("python", "yaml", "toml")
"""Languages of blocks that hold no command."""

PLACES = {
    "methods NAME": "methods fedavg",
    "datasets NAME": "datasets digits",
    "--method NAME": "--method fedavg",
    "edgefl simulate NAME": "edgefl simulate 5g_100clients",
    "RUN --against paper": "PAPER --against paper",
    "EMULATED --against RUN": "RUN --against RUN",
    "RUN...": "RUN",
    "--at 500 --at 1000": "--at 2 --at 4",
    "…": "5g_100clients",
}
"""What stands for a name that the reader chooses. RUN, PAPER, OUT, FILE and DIR name files as they are."""

WHOLE = (
    "edgefl datasets",
    "edgefl methods",
    "edgefl models",
    "edgefl profile list",
    "edgefl scenario list",
    "edgefl scenario schema",
)
"""Commands that need no argument; within a text any other one without arguments is only named."""

_NAME = re.compile(r"edgefl( profile| scenario)? [a-z]+( --[a-z-]+)*")
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(edgefl\s[^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; ``line`` is that of its first line of content."""

    page: Path
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command as a page shows it.

    Attributes:
        line: where it begins.
        text: what a shell is given, to the letter.
        shown: what the page says that it prints; empty where it says nothing.
        within_text: it stands in a sentence or a table, not in a block.
    """

    page: Path
    line: int
    text: str
    shown: str = ""
    within_text: bool = False

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}: {self.text}"

    @property
    def calls(self) -> list[list[str]]:
        """The words of each program that the shell starts, without assignments, redirections and comments."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.wordchars += "=[]{},:%+"
        calls: list[list[str]] = [[]]
        for word in lexer:
            if word in ("&&", "|", ";"):
                calls.append([])
            elif calls[-1] or not re.match(r"[A-Z_]+=", word):
                calls[-1].append(word)
        return [call[: call.index(">")] if ">" in call else call for call in calls]

    @property
    def own_call(self) -> list[str] | None:
        """The words of its one call of ``edgefl``, beside an installation; ``None`` where it needs a shell."""
        own = [call for call in self.calls if "pip" not in call[:3]]
        said = re.sub(r"\s#.*", "", self.text)
        return own[0] if len(own) == 1 and own[0][0] == "edgefl" and not re.search(r"[>~*$|;]|^[A-Z]", said) else None

    @property
    def is_a_name(self) -> bool:
        """Whether it only names a command, as ``edgefl plan`` in a heading does; it would ask for what it lacks."""
        return self.within_text and self.text not in WHOLE and _NAME.fullmatch(self.text) is not None


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2]) for found in _FENCE.finditer(text)]


def commands(page: Path) -> list[Command]:
    """All commands of a page, in order; those within the text are taken where they stand first."""
    text = page.read_text(encoding="utf-8")
    found = [command for block in blocks(page) for command in _commands_of(block)]
    prose = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    known = {command.text for command in found}
    for match in _SPAN.finditer(prose):
        written = _filled(" ".join(match[1].replace("\\|", "|").split()))
        if written not in known:
            known.add(written)
            line = prose.count("\n", 0, match.start()) + 1
            found.append(Command(page, line, written, within_text=True))
    return sorted(found, key=lambda command: command.line)


def _commands_of(block: Block) -> list[Command]:
    if block.language in NO_COMMANDS:
        return []
    prompted = bool(re.search(r"^\$ ", block.text, flags=re.MULTILINE))
    if block.language == "text" and not prompted:
        return []
    if block.language not in ("", "text", "console"):
        raise AssertionError(
            f"{block.page.name}:{block.line}: nobody says whether blocks of '{block.language}' are run"
        )
    if block.language == "console" and not prompted:
        raise AssertionError(f"{block.page.name}:{block.line}: a console without a line that begins with '$ '")
    found: list[Command] = []
    unfinished = ""
    for number, line in enumerate(block.text.splitlines(), block.line):
        if unfinished:
            unfinished += f"\n{line}"
            found[-1] = replace(found[-1], text=unfinished)
        elif not prompted or line.startswith("$ "):
            unfinished = line.removeprefix("$ ") if prompted else line
            found.append(Command(block.page, number, unfinished))
        else:
            found[-1] = replace(found[-1], shown=f"{found[-1].shown}{line}\n")
        if unfinished and not unfinished.endswith("\\"):
            unfinished = ""
    for command in found:
        for call in command.calls:
            if not call or call[0] not in PROGRAMS:
                raise AssertionError(f"{command}: expected a command that begins with one of {', '.join(PROGRAMS)}")
    return found


def _filled(text: str) -> str:
    for place, name in PLACES.items():
        text = text.replace(place, name)
    return text
