"""The cost of a plan is that of what scenes cover: linear in scenes, whatever the grid."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import two_zones
from hypothesis import given
from hypothesis import strategies as st
from scenery import LEFT, TOP, Catalog
from shapely.geometry import MultiPoint

from eopipe.config import check
from eopipe.planning.plan_command import forecast_json, forecast_run
from eopipe.scenes.item import read_item
from eopipe.stac.choose_grid import choose_cells
from eopipe.tiles.cells import Frame
from eopipe.tiles.grid import make_grid
from eopipe.warp.footprints import Coverage, area_of, cell_footprints, reached_cells

EDGE_M, PIXELS = 1_000_000, 32
PACKAGE = str(Path(__file__).parents[2] / "eopipe")


def country(folder: Path, count: int) -> dict[str, Any]:
    """A config of small scenes in a square of 100,000 pixels of 10 m, on its diagonal from corner to corner."""
    catalog = Catalog(folder / f"catalog-{count}")
    for n in range(count):
        shift = (EDGE_M - 10 * PIXELS) * n // (count - 1) // 10 * 10
        image = {"red": np.full((PIXELS, PIXELS), 1000 + n, np.uint16)}
        place = {"left": float(LEFT + shift), "top": float(TOP - shift), "shape": (PIXELS, PIXELS)}
        catalog.add(f"scene-{n:03}", image, **place, properties={"datetime": "2023-05-01T10:00:00Z"})  # type: ignore[arg-type]
    catalog.write()
    search = {"catalog": str(catalog.root), "assets": ["red"], "resolution": 10.0}
    split = {"method": "blocks", "block": 4096, "chip": 16}
    label = {"source": "labels.gpkg", "classes": ["a", "b"]}
    return check({"search": search, "preprocess": {"bands": ["red"], "mask": "none"}, "label": label, "split": split})


def lines_run(config: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """How many lines of the package a forecast runs, each pass of a comprehension included, and the forecast."""
    count = 0

    def on_line(_frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, _event: str, _value: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        forecast = forecast_run(config)
    finally:
        sys.settrace(before)
    return count, forecast_json(forecast, [])


@pytest.mark.exhaustive
def test_the_work_of_a_plan_grows_with_the_scenes_and_not_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    forecast_run(country(tmp_path, 12))
    lines, plans = zip(*(lines_run(country(tmp_path, count)) for count in (20, 40, 80)), strict=True)
    # One line for each pair of scenes is 1.03.
    assert lines[2] - lines[1] < 1.015 * 2 * (lines[1] - lines[0]), lines
    assert min(plans[2]["grid"]["shape"]) > 99_000
    inodes = {need["name"]: need["inodes"] for need in plans[2]["needs"]}
    assert inodes["tiles"] <= 31 * 80
    assert sum(split["chips"] for split in plans[2]["chips"].values()) > 80


def test_the_covered_share_of_two_zones_is_that_of_all_their_pixels() -> None:
    """Counted in quarters, and in one mask of the whole cell."""
    zones = {"EPSG:32632": (725_000, 5_000_000), "EPSG:32633": (264_000, 5_000_000)}
    grids = [make_grid((x, y - 6000, x + 18_000, y + 6000), crs, 20.0, (0.0, 0.0)) for crs, (x, y) in zones.items()]
    frame = Frame.of_grids(grids)
    masks = {cell.id: cell.belongs(*(slice(0, edge) for edge in cell.shape)) for cell in frame.cells}
    areas = [int(mask.sum()) for mask in masks.values()]
    assert all(0 < area < mask.size for area, mask in zip(areas, masks.values(), strict=True))
    assert area_of(frame) == sum(areas)
    ring = [[11.95, 45.12], [12.05, 45.12], [12.05, 45.15], [11.95, 45.15], [11.95, 45.12]]
    coverage = Coverage.of(frame, cell_footprints({"geometry": {"type": "Polygon", "coordinates": [ring]}}, frame))
    covered = coverage.valid(slice(0, frame.shape[0]), slice(0, frame.shape[1]))
    inside = sum(int((covered[cell.window] & masks[cell.id]).sum()) for cell in frame.cells)
    assert inside > 0
    assert coverage.share == inside / sum(areas)
    # Images above each other cover a place once.
    mosaic = Coverage(frame, (*coverage.parts, *coverage.parts))
    assert mosaic.count(cell.window for cell in frame.cells) == inside


@given(
    corners=st.lists(st.tuples(st.floats(14.99, 15.03), st.floats(44.99, 45.03)), min_size=3, max_size=5),
    edge=st.integers(7, 200),
)
def test_a_footprint_is_the_same_in_windows_of_any_size(corners: list[tuple[float, float]], edge: int) -> None:
    frame = Frame.of_grids([make_grid((500_000, 4_983_000, 502_000, 4_985_000), "EPSG:32633", 10.0, (0.0, 0.0))])
    ring = [*map(list, MultiPoint(corners).convex_hull.buffer(1e-4).exterior.coords)]
    footprints = cell_footprints({"geometry": {"type": "Polygon", "coordinates": [ring]}}, frame)
    coverage, cell = Coverage.of(frame, footprints), frame.cells[0]
    whole = coverage.valid(*cell.window)
    for window in cell.windows(edge):
        np.testing.assert_array_equal(coverage.valid(*window), whole[window])
    assert coverage.pixels == whole.sum()


@pytest.mark.parametrize("is_stated", [True, False])
def test_the_cells_that_a_scene_reaches_follow_from_its_item(tmp_path: Path, is_stated: bool) -> None:
    two_zones.write_project(tmp_path, two_zones.SCENES | two_zones.EAST)
    west, south, east, north = two_zones.BBOX
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    frame = choose_cells([], ("red",), {"type": "Polygon", "coordinates": [ring]}, "utm", 10.0)
    for number, name in enumerate(two_zones.SCENES | two_zones.EAST):
        item = read_item(tmp_path / f"catalog/s{number}/item.json")
        if not is_stated:
            for asset in item["assets"].values():
                del asset["proj:shape"], asset["proj:transform"]
        cells = [cell.id for cell in reached_cells(item, frame, ["red", "nir"])]
        assert cells == (["utm33n"] if name in two_zones.EAST else ["utm32n", "utm33n"])
