"""Metres and hectares on the ground: one measure for products, report and scores, whatever the units of the CRS."""

from pathlib import Path

import numpy as np
import pyogrio
import pytest
from affine import Affine
from builders import west_east, write_labels, write_split, write_store
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox
from pyproj import CRS, Geod, Transformer

from eopipe.arrays import AnyArray
from eopipe.chips.chip_set import SLOT_CRS
from eopipe.evaluation.evaluate import class_hectares
from eopipe.evaluation.maps import EvaluationData
from eopipe.inference.map_files import new_map
from eopipe.reporting.finished_run import class_areas
from eopipe.reporting.rasters import MapFile
from eopipe.scenes.item import scene_tags
from eopipe.stages.products import products
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.ground import pixel_hectares, pixel_metres, scale_warning
from eopipe.tiles.store import NO_LABEL, Tiles

NAMES = ("field", "forest", "water")
SHAPE = (64, 64)
# 64 pixels of 500 units: at 60 degrees, in a zone, far from the centre of a projection of Europe, and in degrees.
GRIDS = {
    "UTM": GeoBox(SHAPE, Affine(500.0, 0, 640_000, 0, -500.0, 6_660_000), "EPSG:32633"),
    "Mercator": GeoBox(SHAPE, Affine(500.0, 0, 1_700_000, 0, -500.0, 8_420_000), "EPSG:3857"),
    "LAEA": GeoBox(SHAPE, Affine(500.0, 0, 6_200_000, 0, -500.0, 2_000_000), "EPSG:3035"),
    "degrees": GeoBox(SHAPE, Affine(0.01, 0, 15.0, 0, -0.01, 60.6), "EPSG:4326"),
}


def hectares_by_outline(grid: GeoBox) -> AnyArray:
    """The area (y, x) of each pixel by its four corners on the ellipsoid."""
    proj = CRS(str(grid.crs))
    to_degrees, geod = Transformer.from_crs(proj, proj.geodetic_crs, always_xy=True), Geod(ellps="WGS84")
    areas = np.empty(grid.shape)
    for row, column in np.ndindex(*grid.shape):
        corners = [grid.affine * (column + right, row + down) for right, down in ((0, 0), (0, 1), (1, 1), (1, 0))]
        areas[row, column] = geod.polygon_area_perimeter(*to_degrees.transform(*zip(*corners, strict=True)))[0]
    return areas / 10_000


@pytest.fixture(params=GRIDS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, GeoBox, AnyArray]:
    """A map that is all right, its labels, tiles, and a split in which the right half tests."""
    grid, rng = GRIDS[request.param], np.random.default_rng(len(request.param))
    numbers = np.kron(rng.integers(0, 3, (8, 8)), np.ones((8, 8), int)).astype(np.uint8)
    # More of one class in the north, where pixels in degrees are small.
    numbers[:20, :50] = 1
    numbers[60:, 3:9] = NO_LABEL
    valid = (numbers != NO_LABEL).astype(np.uint8)
    arrays = {"image": numbers[None].astype(np.uint16), "valid": valid}
    write_store(tmp_path / "tiles.zarr", ("B04",), arrays, grid, scene="all", scaling=(1.0, 0.0))
    write_labels(tmp_path / "labels.zarr", numbers, NAMES, grid=grid, scene="all")
    tags = scene_tags(["all"])
    colors = {number: (9 * number, 80, 80) for number in range(3)}
    with new_map(tmp_path / "classes.tif", grid, MapFormat("uint8", NO_LABEL, ("class",), tags, colors)) as file:
        file.write(numbers, 1)
    with new_map(tmp_path / "probabilities.tif", grid, MapFormat("uint16", 65_535, NAMES, tags)) as file:
        file.scales = (1e-4,) * len(NAMES)
        file.write(np.where(valid, 3333, 65_535)[None].repeat(3, 0).astype(np.uint16))
    write_split(tmp_path / "split.json", ["all"], NAMES, 8, west_east(SHAPE, 8, 32))
    return tmp_path, grid, numbers


def test_products_report_and_scores_have_the_same_area_of_each_class(run: tuple[Path, GeoBox, AnyArray]) -> None:
    folder, grid, numbers = run
    exact = hectares_by_outline(grid)
    expected = np.array([exact[numbers == number].sum() for number in range(3)])

    maps = {"classes": (folder / "classes.tif",), "probabilities": (folder / "probabilities.tif",)}
    products(**maps, products=folder / "products", minimum_mapping_unit_ha=0)
    meta, _, _, fields = pyogrio.raw.read(folder / "products/polygons.gpkg", layer="classes")
    columns = dict(zip(meta["fields"].tolist(), fields, strict=True))
    of_products = np.bincount(columns["class"].astype(int), columns["area_ha"], 3)
    np.testing.assert_allclose(of_products, expected, rtol=1e-3)

    tiles, labels = folder / "tiles.zarr", folder / "labels.zarr"
    file = MapFile("", {"": folder / "classes.tif"}, {"": folder / "probabilities.tif"})
    pixels, of_report = class_areas(file, [Tiles(tiles)], {"classes": [*NAMES], "chip": 8})
    np.testing.assert_allclose(of_report, expected, rtol=1e-3)
    assert pixels.tolist() == [(numbers == number).sum() for number in range(3)]

    data = EvaluationData.read((folder / "classes.tif",), (tiles,), (labels,), folder / "split.json")
    of_scores = class_hectares(data)
    np.testing.assert_allclose(of_scores["map"], expected, rtol=1e-3)
    of_test = [exact[:, 32:][numbers[:, 32:] == number].sum() for number in range(3)]
    np.testing.assert_allclose(of_scores["labels"], of_test, rtol=1e-3)
    np.testing.assert_allclose(of_scores["map_in_test"], of_test, rtol=1e-3)


@given(st.sampled_from(sorted(GRIDS)), st.integers(-40, 40), st.integers(1, 90))
@examples(max_examples=40, deadline=None)
def test_a_pixel_is_as_wide_and_as_high_as_on_the_ellipsoid(name: str, shift: int, size: int) -> None:
    first = GRIDS[name]
    grid = GeoBox((size, 2 * size), first.affine * Affine.translation(shift, shift), first.crs)
    exact = hectares_by_outline(grid[size // 2 : size // 2 + 1, size : size + 1])[0, 0]
    width, height = pixel_metres(grid)
    # In a UTM zone half a percent of each is left to the units of the CRS.
    assert width * height / 10_000 == pytest.approx(exact, rel=0.011 if name == "UTM" else 0.002)


def test_a_utm_zone_has_the_pixels_that_its_users_know_and_no_warning() -> None:
    grid = GeoBox((900, 900), Affine(10.0, 0, 200_000, 0, -10.0, 5_000_000), "EPSG:32633")
    assert pixel_metres(grid) == (10.0, 10.0)
    assert scale_warning(grid) == ""
    assert scale_warning(GRIDS["degrees"]) == ""


def test_a_projection_whose_units_are_no_metres_of_the_ground_is_named() -> None:
    assert pixel_metres(GRIDS["Mercator"])[0] == pytest.approx(250, rel=0.02)
    sentence = scale_warning(GRIDS["Mercator"])
    assert sentence.startswith("pixels of 500 m in EPSG:3857 are 25")
    assert "its UTM zone" in sentence


def test_slots_of_a_chip_set_have_the_pixels_of_their_chips() -> None:
    slots = GeoBox((32, 32), Affine(10.0, 0, 0, 0, -10.0, 0), SLOT_CRS)
    assert pixel_metres(slots) == (10.0, 10.0)
    assert pixel_hectares(slots, slice(3, 5), slice(0, 7)).tolist() == [[0.01] * 7] * 2


def test_a_window_beyond_a_cell_has_an_area_in_the_cell_alone() -> None:
    cells = [GRIDS["UTM"], GeoBox((40, 64), Affine(500.0, 0, 200_000, 0, -500.0, 6_660_000), "EPSG:32634")]
    frame = Frame.of_grids(cells, ["EPSG:32633", "EPSG:32634"])
    second = frame.cells[1]
    y, x = slice(30, 50), slice(second.column - 4, second.column + 8)
    areas = frame.hectares(y, x)
    assert (areas[:10, 4:] > 0).all()
    assert not areas[10:].any()
    assert not areas[:, :4].any()
    np.testing.assert_allclose(areas[:10, 4:], pixel_hectares(cells[1], slice(30, 40), slice(0, 8)))
