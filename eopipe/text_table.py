"""Tables as plain text for a terminal."""

from collections.abc import Iterable, Sequence

TextRow = Sequence[str]


def format_bytes(size: float) -> str:
    """Bytes with a unit and three digits: 850 B, 12.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB" if size < 1000 else f"{size:,.0f} TB"


def format_table(rows: Iterable[TextRow], left: tuple[int, ...]) -> list[str]:
    """Lines of a table with aligned columns; columns numbered in `left` are flush left, the others right."""
    cells = list(rows)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    formats = [f"{'<' if column in left else '>'}{width}" for column, width in enumerate(widths)]
    return ["  ".join(f"{cell:{form}}" for cell, form in zip(row, formats, strict=True)).rstrip() for row in cells]
