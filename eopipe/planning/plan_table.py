"""A plan as plain text for a terminal."""

from eopipe.chips.splits import SPLITS
from eopipe.planning.chip_forecast import Chips
from eopipe.planning.disk_forecast import Need
from eopipe.planning.outline import Row
from eopipe.text_table import TextRow, format_bytes, format_table

MOST_ROWS = 40


def scenes(rows: list[Row]) -> list[str]:
    """The scenes, one line each; the middle of a long list is left out, as `plan.json` has it."""
    cells = [_scene(row) for row in rows]
    if len(cells) > MOST_ROWS:
        half = MOST_ROWS // 2
        left = len(cells) - 2 * half
        cells = [*cells[:half], (f"... {left} more in plan.json", "", "", "", "", ""), *cells[-half:]]
    head = ("scene", "date", "cloud", "of the grid", "to fetch", "")
    return format_table([head, *cells], left=(0, 1, 5))


def _scene(row: Row) -> TextRow:
    known = "unknown" if row.unknown and not row.bytes else format_bytes(row.bytes)
    note = f"+ {row.unknown} assets of unknown size" if row.unknown and row.bytes else ""
    size, note = ("0 B", "fetched already") if row.fetched else (known, note)
    cloud = "?" if row.cloud is None else f"{row.cloud:.0f} %"
    return row.name, row.day or "?", cloud, f"{100 * row.share:.0f} %", size, note


def takes(needs: list[Need]) -> list[str]:
    """What the run writes, folder by folder, with two totals."""
    own, beside = [n for n in needs if n.jobs], [n for n in needs if not n.jobs]
    head = ("up to the split", "jobs", "files", "bytes", "there already", "bytes are")
    cells = [head, *map(_need, own), _total("stores and files", own)]
    cells += [*map(_need, beside), _total("all of it", needs)]
    return format_table(cells, left=(0, 5))


def _need(need: Need) -> TextRow:
    made = f"{need.made[0]:,} files" if need.made[0] else ""
    return need.folder, f"{need.jobs or ''}", f"{need.files:,}", format_bytes(need.bytes), made, need.basis


def _total(name: str, needs: list[Need]) -> TextRow:
    jobs, files, size = (sum(values) for values in zip(*((n.jobs, n.files, n.bytes) for n in needs), strict=True))
    return f"= {name}", f"{jobs or ''}", f"{files:,}", format_bytes(size), "", ""


def chips(found: Chips) -> list[str]:
    """Chips by split: places on the grid, chips over all scenes, and what the labels tell of them."""
    names = found.classes if found.is_known else ()
    head = ("split", "places", "chips", *(f"with {name}" for name in names))
    return format_table([head, *(_split(found, split, len(names)) for split in SPLITS)], left=(0,))


def _split(found: Chips, split: str, classes: int) -> TextRow:
    rows = found.of_class(split)[:classes]
    pixels = max(1, sum(own for _, _, own in rows))
    shares = (f"{count:,} ({100 * own / pixels:.1f} %)" for _, count, own in rows)
    return split, f"{len(found.places[split]):,}", f"{found.count(split):,}", *shares
