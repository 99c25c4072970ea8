"""Cards: what a model or its data are, for whoever meets them without the run; as Markdown and in the page."""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from eopipe.reporting.data_tables import Row


@dataclass(frozen=True)
class Said:
    """What only a person can say of a model: what it is for, what it must not be used for, who made it, its licence."""

    use: str = ""
    limits: tuple[str, ...] = ()
    author: str = ""
    license: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first cell of a row names it."""

    caption: str
    heads: Row
    rows: list[Row]


@dataclass(frozen=True)
class Part:
    """A headed part of a card: paragraphs, points, tables, a command."""

    title: str
    text: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Card:
    """A card, with what catalogues read of it (the front matter of Hugging Face)."""

    title: str
    kind: str
    matter: dict[str, Any]
    parts: tuple[Part, ...]


def markdown(card: Card) -> str:
    """The card as Markdown with YAML front matter; text from outside cannot become markup."""
    matter = yaml.safe_dump(card.matter, sort_keys=False, allow_unicode=True, width=100)
    lines = ["---", *matter.splitlines(), "---", "", f"# {_plain(card.title)}", "", card.kind, ""]
    for part in card.parts:
        lines += [f"## {part.title}", ""]
        lines += [line for text in part.text for line in (_plain(text), "")]
        lines += [*(f"- {_plain(point)}" for point in part.points), *[""] * bool(part.points)]
        lines += [line for table in part.tables if table.rows for line in _table(table)]
        lines += ["```console", part.command, "```", ""] if part.command else []
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    head = ["", f"*{_plain(table.caption)}*", "", _line(table.heads), "|" + "---|" * len(table.heads)]
    return [*head[1:], *map(_line, table.rows), ""]


def _line(cells: Row) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text on one line in which nothing is markup; addresses stay readable."""
    return re.sub(r"([\\`*\[\]<>|#])", r"\\\1", " ".join(str(text).split()))
