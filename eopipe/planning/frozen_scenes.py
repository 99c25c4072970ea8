"""The scenes and the grid of a run: its frozen list, or a search in a temporary folder."""

import math
import shlex
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from eopipe.composites.periods import day_of
from eopipe.contract import Input, Option, stage, to_args
from eopipe.errors import BadInputError
from eopipe.fetch.assets import AssetSize, local_file
from eopipe.provenance.redact import redact_for_record
from eopipe.publish import MANIFEST, verify
from eopipe.run.images import periods
from eopipe.scenes.item import ITEM_FILE, Item, day_text, read_item, scene_name
from eopipe.stac.query import cloud_cover
from eopipe.text_files import read_json, write_json
from eopipe.text_table import TextRow, format_bytes, format_table
from eopipe.tiles.cells import Frame, read_frame
from eopipe.tiles.globe import outline_of
from eopipe.warp.footprints import CellFootprint, Coverage, cell_footprints, grid_extent

Config = dict[str, Any]
# Outputs of search, by port.
SEARCH_OUTPUTS = {"items": "items", "grid": "grid.json", "selection": "selection.json"}
# The edge of the blocks of most cloud-optimised GeoTIFFs, in pixels.
BLOCK = 512
# The share of the image in a cloud-optimised GeoTIFF; overviews are the rest.
IMAGE_SHARE = 0.75
# Pixels of all scenes together: of ten thousand granules of 10 m.
MOST_PIXELS = 10**12
MAX_ROWS = 40


@dataclass(frozen=True)
class FrozenScenes:
    """Scenes by name and the cells of the run, and the scenes of each composite.

    `is_frozen` says whether the results of the run hold them. There are no items where only a server knows them.
    """

    items: dict[str, Item]
    frame: Frame
    is_frozen: bool = False
    periods: dict[str, list[str]] = field(default_factory=dict)

    @property
    def days(self) -> tuple[date, ...]:
        return tuple(sorted(day_of(item["properties"], f"scene {name}") for name, item in self.items.items()))

    @cached_property
    def footprints(self) -> dict[str, list[CellFootprint]]:
        return {name: cell_footprints(item, self.frame) for name, item in self.items.items()}

    @cached_property
    def masks(self) -> dict[str, Coverage]:
        return {name: Coverage.of(self.frame, footprints) for name, footprints in self.footprints.items()}

    @cached_property
    def images(self) -> dict[str, Coverage]:
        """What the images of the model cover, by name: its scenes, or composites of them."""
        if not self.periods:
            return {name: self.masks[name] for name in sorted(self.items)}
        members = {name: [self.masks[scene] for scene in names] for name, names in sorted(self.periods.items())}
        return {name: Coverage.union(self.frame, masks) for name, masks in members.items()}


def find_scenes(config: Config) -> FrozenScenes:
    """The scenes that search finds; a list that the run froze with the same settings is used as it is.

    Raises the errors of search: no scene, a missing asset, a server that does not respond.
    """
    results = Path(config["results"])
    if is_up_to_date(config, results):
        return _read_scenes(config, results, is_frozen=True)
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as folder:
        outputs = {port: Path(folder, name) for port, name in SEARCH_OUTPUTS.items()}
        stage("search").run(**outputs, **config["search"])
        return _read_scenes(config, Path(folder), is_frozen=False)


def is_up_to_date(config: Config, results: Path) -> bool:
    """Whether the run's list is whole and was written with these settings, according to its run record."""
    record_path, single_files = results / "items.run.json", [results / "grid.json", results / "selection.json"]
    outputs = [record_path, *single_files, results / "items" / MANIFEST]
    if not all(path.is_file() for path in outputs):
        return False
    verify(results / "items")
    record, settings, search = read_json(record_path), config["search"], stage("search")
    if record["status"] != "completed" or changed_options(record, "search", settings):
        return False
    command = shlex.join(record["arguments"])
    inputs = {port.flag: shlex.join(redact_for_record(to_args(port, settings[port.name]))) for port in search.of(Input)}
    return all(argument in command if argument else flag not in command for flag, argument in inputs.items())


def changed_options(record: dict[str, Any], name: str, section: dict[str, Any]) -> list[str]:
    """The options of a stage that its run record has with another value than a config."""
    options = {port.name: redact_for_record(section[port.name]) for port in stage(name).of(Option)}
    return [f"{name}.{key}" for key, value in options.items() if record["settings"].get(key) != value]


def _read_scenes(config: Config, folder: Path, *, is_frozen: bool) -> FrozenScenes:
    items = folder / "items"
    scenes = {path.stem: read_item(path) for path in sorted(items.glob("*.geojson"))}
    composites = periods(config, items) if config["composite"]["method"] != "none" else {}
    return FrozenScenes(scenes, read_frame(folder / "grid.json"), is_frozen, composites)


def scene_folder(config: Config, name: str, item: Item, folder: Path) -> Path | None:
    """The folder of a scene as fetch writes it: the fetched one, or links to local files; None for neither."""
    fetched, links = Path(config["results"], "scenes", name), folder / "scenes" / name
    if (fetched / MANIFEST).is_file():
        return fetched
    catalog = config["search"]["catalog"]
    local_files = {n: local_file(a, f"scene {name}, asset {n}", catalog) for n, a in item["assets"].items()}
    if None in local_files.values():
        return None
    links.mkdir(parents=True, exist_ok=True)
    assets = {}
    for asset, file in local_files.items():
        if file is not None:
            link = links / f"{scene_name(asset)}{file.suffix}"
            link.unlink(missing_ok=True)
            link.symlink_to(file)
            assets[asset] = item["assets"][asset] | {"href": link.name}
    write_json(links / ITEM_FILE, item | {"assets": assets})
    return links


def refuse_huge_grid(scenes: FrozenScenes) -> None:
    """Raise BadInputError for scenes that cover more pixels than a plan can count."""
    (height, width), places = scenes.frame.shape, [place for places in scenes.footprints.values() for place in places]
    covered = sum(math.prod(axis.stop - axis.start for axis in place.window) for place in places)
    if covered <= MOST_PIXELS:
        return
    crs = " and ".join(str(cell.grid.crs) for cell in scenes.frame.cells)
    raise BadInputError(
        f"the grid of {height:,} x {width:,} pixels in {crs} is too large: {len(scenes.items)} scenes have "
        f"{covered:.2g} pixels in it, and a plan counts at most {MOST_PIXELS:.2g}; choose a smaller search.area, a "
        "coarser search.resolution, or a run for each place where scenes are far apart"
    )


@dataclass(frozen=True)
class SceneRow:
    """A scene in the files of a plan, with its cloud cover in percent; `fetched`: its assets are in the results."""

    scene: str
    date: str
    cloud: float | None
    bytes: int
    assets_of_unknown_size: int
    share_of_grid: float
    fetched: bool


def scene_rows(config: Config, scenes: FrozenScenes, sizes: list[AssetSize]) -> list[SceneRow]:
    """The scenes by day, then by name."""
    rows, sizes_of = [], defaultdict[str, list[AssetSize]](list)
    for size in sizes:
        sizes_of[size.scene].append(size)
    for name, item in scenes.items.items():
        assets = sizes_of[item["id"]]
        unknown = sum(not size.bytes for size in assets)
        is_fetched = Path(config["results"], "scenes", name, MANIFEST).is_file()
        total, share = sum(size.bytes for size in assets), round(scenes.masks[name].share, 4)
        rows.append(SceneRow(name, day_text(item["properties"]), cloud_cover(item), total, unknown, share, is_fetched))
    return sorted(rows, key=lambda row: (row.date, row.scene))


def fetched_sizes(config: Config, scenes: FrozenScenes, sizes: list[AssetSize]) -> list[AssetSize]:
    """What `fetch` reads of assets: all, or of windows the part that the grid needs, by area, without overviews.

    Blocks at the border are whole, on average half outside.
    """
    if not config["fetch"]["windows"]:
        return sizes
    shares = {scenes.items[name]["id"]: _share_in_grid(places) for name, places in scenes.footprints.items()}
    return [replace(size, bytes=round(size.bytes * IMAGE_SHARE * shares[size.scene])) for size in sizes]


def _share_in_grid(places: list[CellFootprint]) -> float:
    """The part of a scene's footprint in the grid and a border of half a block; 1 without a footprint."""
    parts = [(place.outline, grid_extent(place.cell.grid, BLOCK // 2)) for place in places]
    return min(1.0, sum(area.intersection(part).area / area.area if area else 1.0 for area, part in parts))


def plan_geojson(scenes: FrozenScenes, rows: list[SceneRow]) -> dict[str, Any]:
    """Footprints with dates, cloud and bytes, and the outline of the grid, in degrees."""
    from shapely.geometry import mapping

    features = [_feature(scenes.items[row.scene]["geometry"], kind="scene", **asdict(row)) for row in rows]
    outlines = []
    for cell in scenes.frame.cells:
        (height, width), name = cell.shape, {"cell": cell.id} if cell.id else {}
        outline = {"kind": "grid", "crs": str(cell.grid.crs), "height": height, "width": width} | name
        outlines.append(_feature(dict(mapping(outline_of(cell.grid))), **outline))
    return {"type": "FeatureCollection", "features": [*outlines, *features]}


def _feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def scenes_table(rows: list[SceneRow]) -> list[str]:
    """The scenes, one line each; the middle of a long list is omitted, `plan.json` has it."""
    cells = [_scene_row(row) for row in rows]
    if len(cells) > MAX_ROWS:
        half = MAX_ROWS // 2
        omitted = len(cells) - 2 * half
        cells = [*cells[:half], (f"... {omitted} more in plan.json", "", "", "", "", ""), *cells[-half:]]
    head = ("scene", "date", "cloud", "of the grid", "to fetch", "")
    return format_table([head, *cells], left=(0, 1, 5))


def _scene_row(row: SceneRow) -> TextRow:
    known = "unknown" if row.assets_of_unknown_size and not row.bytes else format_bytes(row.bytes)
    note = f"+ {row.assets_of_unknown_size} assets of unknown size" if row.assets_of_unknown_size and row.bytes else ""
    size, note = ("0 B", "already fetched") if row.fetched else (known, note)
    cloud = "?" if row.cloud is None else f"{row.cloud:.0f} %"
    return row.scene, row.date or "?", cloud, f"{100 * row.share_of_grid:.0f} %", size, note
