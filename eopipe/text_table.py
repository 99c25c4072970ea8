"""Tables as plain text for a terminal."""

from collections.abc import Iterable, Sequence

Cells = Sequence[str]


def spoken(size: float) -> str:
    """Bytes in words, with three digits: 850 B, 12.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB" if size < 1000 else f"{size:,.0f} TB"


def aligned(cells: Iterable[Cells], left: tuple[int, ...]) -> list[str]:
    """Columns of a table; those named in `left` are flush left, the others right."""
    rows = list(cells)
    wide = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    flush = [f"{'<' if n in left else '>'}{width}" for n, width in enumerate(wide)]
    return ["  ".join(f"{cell:{how}}" for cell, how in zip(row, flush, strict=True)).rstrip() for row in rows]
