"""`eopipe plan`: the table, the files, and the verdict."""

import argparse
import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eopipe.chips.splits import SPLITS
from eopipe.clusters.check_profile import config_conflicts, read_profile
from eopipe.clusters.find_profile import find_profile
from eopipe.clusters.profile import describe_training
from eopipe.config import load
from eopipe.errors import NoSpaceError, UsageError
from eopipe.fetch.retry import FetchSession
from eopipe.fetch.sizes import asset_sizes
from eopipe.planning.chip_forecast import Chips, chips_of
from eopipe.planning.chip_forecast import told as chips_told
from eopipe.planning.disk_forecast import Need, free, needs
from eopipe.planning.footprints import covered
from eopipe.planning.frozen_scenes import Config, Frozen, Row, clipped, frozen, geojson, rows_of, told
from eopipe.planning.plan_figure import write_plan_figure
from eopipe.publish import publish, write_json
from eopipe.text_table import TextRow, format_bytes, format_table
from eopipe.tiles.grid import grid_json

# Seconds that a server has to tell the size of a file.
PATIENCE = 30.0
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True)
class Forecast:
    """All that a plan tells."""

    seen: Frozen
    rows: list[Row]
    chips: Chips
    needs: list[Need]

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Files and bytes of the run, and how many of them are still to come."""
        files, size = sum(need.files for need in self.needs), sum(need.bytes for need in self.needs)
        made = [need.made for need in self.needs]
        return files, size, files - sum(n for n, _ in made), size - sum(n for _, n in made)

    @property
    def unknown(self) -> int:
        """Assets whose size nobody told."""
        return sum(row.unknown for row in self.rows)


def plan(words: list[str]) -> int:
    """Show what a run will fetch, make and need, before anything is downloaded; refuse one over a quota."""
    given = _parser().parse_args(words)
    target, most = given.out, size_of(given.max_bytes) if given.max_bytes else None
    if target.is_dir() and any(target.iterdir()) and not (target / "plan.json").is_file():
        raise UsageError(f"{target} holds other files; give --out a folder of its own")
    config = load(given.config)
    # Stages run on trial; what they log is not of a run.
    logging.getLogger("eopipe").setLevel(logging.WARNING)
    training = training_of(config, given.profile)
    found = forecast(config)
    over = refusals(config, found, given.max_files, most)
    print("\n".join([*lines(config, found), "", *training]))
    with publish(target, folder=True) as draft:
        write_json(draft / "plan.json", summary(found, over) | {"training": training})
        write_json(draft / "plan.geojson", geojson(found.seen, found.rows))
        write_plan_figure(draft / "plan.png", found.seen, found.rows, found.chips, config["report"]["title"])
    print(f"\nwrote {', '.join(str(target / name) for name in ('plan.png', 'plan.geojson', 'plan.json'))}")
    if over:
        raise NoSpaceError(f"this run does not fit: {'; '.join(over)}")
    return 0


def training_of(config: Config, profile: str | None) -> list[str]:
    """How the training will be started, and what of that the profile and the config tell differently."""
    told = read_profile(find_profile(profile).file) if profile else None
    return [describe_training(config["train"], told), *(config_conflicts(told, config["train"]) if told else ())]


def forecast(config: Config) -> Forecast:
    """Search, weigh and count; nothing is downloaded and nothing is left in the results."""
    seen = frozen(config)
    masks = {name: covered(item, seen.grid) for name, item in seen.items.items()}
    catalog = Path(config["search"]["catalog"]) if config["search"]["catalog"] else None
    fetch = config["fetch"]
    told = asset_sizes(list(seen.items.values()), catalog, FetchSession(PATIENCE, fetch["per_host"], fetch["sign"]))
    sizes = [clipped(size, seen) for size in told] if fetch["windows"] else told
    chips = chips_of(config, seen, masks)
    return Forecast(seen, rows_of(config, seen, sizes, masks), chips, needs(config, seen, sizes, chips, masks))


def refusals(config: Config, found: Forecast, max_files: int | None, max_bytes: int | None) -> list[str]:
    """Every quota that the run would break, with what it needs and what there is."""
    files, size, new_files, new_bytes = found.totals
    room, inodes = free(Path(config["results"]))
    spare, _ = free(Path(config["state"]))
    # Parts of one scene wait in the state folder while it is fetched.
    parts = max((row.bytes for row in found.rows if not row.fetched), default=0)
    checks = (
        (max_files is not None and files > max_files, f"it needs {files} files, --max-files allows {max_files}"),
        (
            max_bytes is not None and size > max_bytes,
            f"it needs {format_bytes(size)}, --max-bytes allows {format_bytes(max_bytes or 0)}",
        ),
        (
            new_bytes > room,
            f"it needs {format_bytes(new_bytes)} more, {format_bytes(room)} are free for {config['results']}",
        ),
        # Some file systems count no inodes.
        (0 < inodes < new_files, f"it needs {new_files} more files, {inodes} are free for {config['results']}"),
        (
            parts > spare,
            f"the largest scene is {format_bytes(parts)}, {format_bytes(spare)} are free for {config['state']}",
        ),
    )
    return [sentence for wrong, sentence in checks if wrong]


def lines(config: Config, found: Forecast) -> list[str]:
    """What the terminal shows."""
    _, _, new_files, new_bytes = found.totals
    fetch = sum(row.bytes for row in found.rows if not row.fetched)
    unknown = f", {found.unknown} assets of unknown size not counted" if found.unknown else ""
    room = "; ".join(dict.fromkeys(_room(config[name]) for name in ("results", "state")))
    height, width = found.seen.grid.shape
    grid = f"grid of {height} x {width} pixels in {found.seen.grid.crs}"
    kept = f", frozen in {config['results']}" if found.seen.kept else ""
    clear = "were clear" if found.chips.is_known else "were clear and labelled"
    return [
        *scenes_table(found.rows),
        "",
        f"{len(found.rows)} scenes{kept}, {format_bytes(fetch)} to fetch{unknown}; {grid}",
        "",
        *takes_table(found.needs),
        "",
        *chips_table(found.chips),
        f"chips of {found.chips.plan.chip} pixels, if all pixels {clear}",
        "",
        f"still to write: {new_files:,} files, {format_bytes(new_bytes)}; free: {room}",
    ]


def _room(folder: str) -> str:
    size, inodes = free(Path(folder))
    return f"{format_bytes(size)}" + (f" and {inodes:,} inodes" if inodes else "")


def summary(found: Forecast, over: list[str]) -> dict[str, Any]:
    """What `plan.json` holds."""
    return {
        "scenes": [told(row) for row in found.rows],
        "grid": grid_json(found.seen.grid),
        "fetch": {
            "bytes": sum(row.bytes for row in found.rows if not row.fetched),
            "assets_of_unknown_size": found.unknown,
        },
        "needs": [asdict(need) for need in found.needs],
        "chips": chips_told(found.chips),
        "refused": over,
    }


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="eopipe plan", description=plan.__doc__, allow_abbrev=False)
    made.add_argument("config", type=Path, nargs="?", default=Path("config/config.yaml"), help="[%(default)s]")
    made.add_argument("--out", type=Path, default=Path("plan"), help="folder of the plan [%(default)s]")
    made.add_argument("--profile", help="profile that the run will have, to tell what its training gets")
    made.add_argument("--max-files", type=int, help="refuse a run of more files, up to the split")
    made.add_argument("--max-bytes", metavar="SIZE", help="refuse a run of more bytes, as 200GB")
    return made


def size_of(text: str) -> int:
    """Bytes of a size in words, as 500MB, 2TiB or 1000; raises UsageError for what is none."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?) ?([kmgt]i?)?b?", text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is no size; write 500MB or 2TiB")
    return round(float(found[1]) * UNITS[found[2] or ""])


MOST_ROWS = 40


def scenes_table(rows: list[Row]) -> list[str]:
    """The scenes, one line each; the middle of a long list is left out, as `plan.json` has it."""
    cells = [_scene_row(row) for row in rows]
    if len(cells) > MOST_ROWS:
        half = MOST_ROWS // 2
        left = len(cells) - 2 * half
        cells = [*cells[:half], (f"... {left} more in plan.json", "", "", "", "", ""), *cells[-half:]]
    head = ("scene", "date", "cloud", "of the grid", "to fetch", "")
    return format_table([head, *cells], left=(0, 1, 5))


def _scene_row(row: Row) -> TextRow:
    known = "unknown" if row.unknown and not row.bytes else format_bytes(row.bytes)
    note = f"+ {row.unknown} assets of unknown size" if row.unknown and row.bytes else ""
    size, note = ("0 B", "fetched already") if row.fetched else (known, note)
    cloud = "?" if row.cloud is None else f"{row.cloud:.0f} %"
    return row.name, row.day or "?", cloud, f"{100 * row.share:.0f} %", size, note


def takes_table(needs: list[Need]) -> list[str]:
    """What the run writes, folder by folder, with two totals."""
    own, beside = [n for n in needs if n.jobs], [n for n in needs if not n.jobs]
    head = ("up to the split", "jobs", "files", "bytes", "there already", "bytes are")
    cells = [head, *map(_need_row, own), _total_row("stores and files", own)]
    cells += [*map(_need_row, beside), _total_row("all of it", needs)]
    return format_table(cells, left=(0, 5))


def _need_row(need: Need) -> TextRow:
    made = f"{need.made[0]:,} files" if need.made[0] else ""
    return need.folder, f"{need.jobs or ''}", f"{need.files:,}", format_bytes(need.bytes), made, need.basis


def _total_row(name: str, needs: list[Need]) -> TextRow:
    jobs, files, size = (sum(values) for values in zip(*((n.jobs, n.files, n.bytes) for n in needs), strict=True))
    return f"= {name}", f"{jobs or ''}", f"{files:,}", format_bytes(size), "", ""


def chips_table(found: Chips) -> list[str]:
    """Chips by split: places on the grid, chips over all scenes, and what the labels tell of them."""
    names = found.classes if found.is_known else ()
    head = ("split", "places", "chips", *(f"with {name}" for name in names))
    return format_table([head, *(_split_row(found, split, len(names)) for split in SPLITS)], left=(0,))


def _split_row(found: Chips, split: str, classes: int) -> TextRow:
    rows = found.of_class(split)[:classes]
    pixels = max(1, sum(own for _, _, own in rows))
    shares = (f"{count:,} ({100 * own / pixels:.1f} %)" for _, count, own in rows)
    return split, f"{len(found.places[split]):,}", f"{found.count(split):,}", *shares
