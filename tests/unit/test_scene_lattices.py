"""Cells have the CRS and the pixels of their scenes, wherever UTM by arithmetic would give others."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affine import Affine
from pyproj import Transformer
from scenery import Catalog, Run, numbered
from shapely import box, transform
from shapely.geometry import mapping

from eopipe.stac.choose_grid import choose_cells
from eopipe.text_files import write_json
from eopipe.tiles.cells import Frame, read_frame
from eopipe.tiles.store import Tiles

WARNING = "event=scenes_interpolated"


def scene(
    name: str, crs: str, degrees: tuple[float, float, float, float], step: float = 30.0, phase: float = 0.0
) -> dict[str, Any]:
    """A scene that covers a rectangle in degrees, its pixel edges at multiples of `step` and a phase in pixels."""
    change = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    west, south, east, north = (round(edge / step) * step for edge in change.transform_bounds(*degrees))
    left, top, width, height = west + phase * step, north + phase * step, (east - west) / step, (north - south) / step
    asset = {"href": "b.tif", "proj:shape": [height, width], "proj:transform": [step, 0, left, 0, -step, top]}
    outline = transform(
        box(left, top - step * height, left + step * width, top),
        lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1], direction="INVERSE")),
    )
    return {"id": name, "geometry": mapping(outline), "properties": {"proj:code": crs}, "assets": {"b": asset}}


def area(*degrees: float) -> dict[str, Any]:
    return mapping(box(*degrees))


def cells_of(items: list[dict[str, Any]], *degrees: float, resolution: float | None = None) -> Frame:
    return choose_cells(items, ("b",), area(*degrees) if degrees else None, "utm", resolution)


def is_on(grid: Any, item: dict[str, Any]) -> bool:
    """Whether a grid has the pixels of an item."""
    column, row = ~grid.affine * Affine(*item["assets"]["b"]["proj:transform"]) * (0, 0)
    is_even = abs(column - round(column)) < 1e-3 and abs(row - round(row)) < 1e-3
    return grid.crs == item["properties"]["proj:code"] and is_even


def test_scenes_in_utm_north_south_of_the_equator_keep_their_pixels(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    pixels, catalog = numbered((60, 60)), Catalog(tmp_path / "catalog")
    catalog.add("s", {"red": pixels}, shape=(60, 60), left=499985, top=-2917470, crs="EPSG:32633", nodata=0)
    catalog.write()
    files = [f"--{key}={tmp_path / key}" for key in ("items", "grid", "selection")]
    assert run("search", "--catalog", catalog.root, *files, "--assets", "red", "--crs", "utm").code == 0
    frozen, folder, store = tmp_path / "items/s.geojson", tmp_path / "scene", tmp_path / "s.zarr"
    assert run("fetch", "--item", frozen, "--catalog", catalog.root, "--scene", folder).code == 0
    options = ("--bands", "red", "--mask", "none", "--chunk", 16, "--shard", 32)
    assert run("preprocess", "--scene", folder, "--grid", tmp_path / "grid", "--tiles", store, *options).code == 0
    tiles = Tiles(store)
    image, valid = tiles.read("image")[0], tiles.read("valid") > 0
    assert tiles.grid.crs == "EPSG:32633"
    np.testing.assert_array_equal(np.sort(image[valid]), np.sort(pixels.ravel()))
    assert WARNING not in caplog.text


@pytest.mark.parametrize(
    ("scenes", "degrees", "expected"),
    [
        (
            [("EPSG:32632", (11.8, -26.2, 12.05, -25.9)), ("EPSG:32633", (11.95, -26.2, 12.2, -25.9))],
            (11.9, -26.1, 12.1, -26.0),
            {"utm32s": "EPSG:32632", "utm33s": "EPSG:32633"},
        ),
        # Zone 32 reaches to 3 degrees east in the south of Norway.
        (
            [("EPSG:32632", (5.7, 59.9, 6.3, 60.2))],
            (5.9, 60.0, 6.1, 60.1),
            {"utm31n": "EPSG:32632", "utm32n": "EPSG:32632"},
        ),
        (
            [("EPSG:25832", (5.8, 50.9, 6.3, 51.2)), ("EPSG:25831", (5.7, 50.9, 6.2, 51.2))],
            (5.9, 51.0, 6.1, 51.1),
            {"utm31n": "EPSG:25831", "utm32n": "EPSG:25832"},
        ),
        (
            [("EPSG:32601", (-180.05, -18.2, -179.7, -17.9)), ("EPSG:32660", (179.7, -18.2, 180.05, -17.9))],
            (),
            {"utm01s": "EPSG:32601", "utm60s": "EPSG:32660"},
        ),
    ],
    ids=["Landsat in the south", "Norway", "ETRS89", "180 degrees"],
)
def test_cells_have_the_crs_and_the_pixels_of_their_scenes(
    scenes: Any, degrees: Any, expected: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = [scene(f"s{n}", crs, place, phase=0.5) for n, (crs, place) in enumerate(scenes)]
    frame = cells_of(items, *degrees)
    assert {cell.id: str(cell.grid.crs) for cell in frame.cells} == expected
    for cell in frame.cells:
        assert any(is_on(cell.grid, item) for item in items)
        belongs = cell.belongs(slice(0, cell.shape[0]), slice(0, cell.shape[1]))
        assert 0 < np.count_nonzero(belongs) < belongs.size
    assert WARNING not in caplog.text
    write_json(tmp_path / "grid.json", frame.json())
    assert read_frame(tmp_path / "grid.json").is_same(frame)
    assert json.dumps(cells_of(items[::-1], *degrees).json()) == json.dumps(frame.json())


def test_where_scenes_disagree_the_crs_of_most_pixels_wins_and_the_others_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Pixels of 20 m, so that the 10,000 km between the two CRSs are whole pixels and areas the same.
    place = (15.0, -26.2, 15.3, -26.0)
    north = scene("north", "EPSG:32633", place, step=20.0)
    south = [scene(f"south{n}", "EPSG:32733", place, step=20.0) for n in range(2)]
    frame = cells_of([north, *south])
    assert str(frame.cells[0].grid.crs) == "EPSG:32733"
    assert f"{WARNING} scenes=1 first=north" in caplog.text
    assert "their pixels in EPSG:32633 differ from the cells' in EPSG:32733" in caplog.text
    caplog.clear()
    # Of as many pixels the zone itself; of a few in the same place those that most have.
    assert str(cells_of([north, south[0]]).cells[0].grid.crs) == "EPSG:32733"
    few = scene("few", "EPSG:32733", (15.0, -26.05, 15.1, -26.0), step=20.0)
    assert str(cells_of([north, few]).cells[0].grid.crs) == "EPSG:32633"
    assert "first=few" in caplog.text


def test_where_lattices_disagree_that_of_most_pixels_wins(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shifted = [scene(f"shifted{n}", "EPSG:32633", (15.0, 45.0, 15.3, 45.2), phase=0.5) for n in range(2)]
    other = scene("other", "EPSG:32633", (15.0, 45.0, 15.3, 45.2))
    (cell,) = cells_of([other, *shifted]).cells
    assert is_on(cell.grid, shifted[0])
    assert not is_on(cell.grid, other)
    assert f"{WARNING} scenes=1 first=other" in caplog.text


def test_scenes_of_another_pixel_size_or_in_the_neighbouring_cell_are_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coarse = scene("coarse", "EPSG:32633", (15.0, 45.0, 15.3, 45.2), phase=0.5)
    fine = scene("fine", "EPSG:32633", (15.0, 45.0, 15.3, 45.2), step=10.0)
    assert is_on(cells_of([coarse, fine]).cells[0].grid, fine)
    cells_of([coarse], resolution=20.0)
    across = [
        scene("west", "EPSG:32632", (11.8, 45.0, 12.05, 45.2)),
        scene("east", "EPSG:32633", (11.9, 45, 12.2, 45.2)),
    ]
    assert [str(cell.grid.crs) for cell in cells_of(across).cells] == ["EPSG:32632", "EPSG:32633"]
    assert WARNING not in caplog.text
