"""Plain text for a terminal, Markdown and spreadsheets: tables, and text of others without commands or markup."""

import csv
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from eopipe.errors import UsageError

TextRow = Sequence[str]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
LONGEST_MESSAGE = 20_000
# What a spreadsheet executes of the cells of a table, but for numbers.
EXECUTED = re.compile(r"(?!-[\d.]+(e[-+]?\d+)?\Z)[=+\-@\t\n]")
# Commands of a terminal, characters that reverse the direction of the text after them, and unusual line ends.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shell_word(value: object) -> str:
    """A path or name as a shell takes it, for a command that is to be pasted."""
    return shlex.quote(str(value))


def printable(text: str) -> str:
    """A text whose control characters, but for line ends and tabs, are written as their codes."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def message_line(kind: str, text: str) -> str:
    """An error or warning as it is printed: line ends in ids and file names of others begin no message of their own.

    They are written as their codes, but for those before an indented line, as lists in messages have them.
    """
    text = text.strip() if len(text) <= LONGEST_MESSAGE else f"{text.strip()[:LONGEST_MESSAGE]} …"
    return f"{kind}: " + re.sub(r"\n(?!  )", r"\\n", text)


class PrintableStream:
    """A stream to which only printable text is written; `raw` is the stream itself."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def printable_output(stdout: TextIO, stderr: TextIO) -> Iterator[None]:
    """Let this process print only printable text: ids and names of others must not command the terminal."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(cast(TextIO, PrintableStream(stdout))))
        stack.enter_context(redirect_stderr(cast(TextIO, PrintableStream(stderr))))
        yield


def escape_markdown(text: str) -> str:
    """Text on one line in which nothing is markup; addresses stay readable."""
    return re.sub(r"([\\`*\[\]<>|#])", r"\\\1", " ".join(str(text).split()))


def format_bytes(size: float) -> str:
    """Bytes with a unit and three digits: 850 B, 12.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB" if size < 1000 else f"{size:,.0f} TB"


def parse_size(text: str) -> int:
    """Bytes of a size such as 500MB, 2TiB or 1000; raises UsageError for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?) ?([kmgt]i?)?b?", text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} is not a size; write a number with a unit, such as 500MB or 2TiB")
    return round(float(match[1]) * UNITS[match[2] or ""])


def format_table(rows: Iterable[TextRow], left: tuple[int, ...]) -> list[str]:
    """Lines of a table with aligned columns; columns numbered in `left` are flush left, the others right."""
    cells = list(rows)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    formats = [f"{'<' if column in left else '>'}{width}" for column, width in enumerate(widths)]
    return ["  ".join(f"{cell:{form}}" for cell, form in zip(row, formats, strict=True)).rstrip() for row in cells]


def html_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title and a table as HTML, for a notebook; all texts are escaped."""
    from markupsafe import Markup

    head = Markup("").join(Markup("<th>{}</th>").format(text) for text in heads)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(text) for text in row))
        for row in rows
    )
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)
    return str(Markup("<p><b>{}</b></p>{}").format(title, table))


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a table for a spreadsheet, the first row with the names of its columns; no text of it is executed there.

    A text that would be begins with an apostrophe, as one types it into a cell to have a text.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        # Readers begin a row at a carriage return, which the writer would leave as it is.
        texts = ([re.sub("\r\n?", "\n", "" if cell is None else str(cell)) for cell in row] for row in rows)
        quoted = ([f"'{text}" if EXECUTED.match(text) else text for text in row] for row in texts)
        csv.writer(file, lineterminator="\n").writerows(quoted)
