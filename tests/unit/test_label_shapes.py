"""Shapes of label files as other tools write them: repaired without lines, across 180 degrees, clipped and counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from affine import Affine
from builders import write_features
from odc.geo.geobox import GeoBox
from pyproj import Transformer
from rasterio.features import rasterize
from shapely import LineString, MultiPolygon, Point, Polygon, box

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError
from eopipe.labels.kinds import Legend
from eopipe.labels.sources import LabelShapes
from eopipe.labels.vectors import read_features, to_grid
from eopipe.tiles.store import NO_LABEL

CRS, LEFT, TOP, STEP = "EPSG:32633", 500e3, 5.1e6, 10.0
GRID = GeoBox((90, 70), Affine(STEP, 0, LEFT, 0, -STEP, TOP), CRS)


def at_180_degrees() -> GeoBox:
    """A grid in Fiji: the 180 degree meridian is in the middle of it."""
    x, y = Transformer.from_crs("EPSG:4326", "EPSG:32701", always_xy=True).transform(-180, -17)
    return GeoBox((90, 70), Affine(STEP, 0, round(x, -1) - 350, 0, -STEP, round(y, -1)), "EPSG:32701")


def write(path: Path, *shapes: Any, crs: str | None = CRS) -> Path:
    return write_features(path, *((shape, {"class": "a"}) for shape in shapes), crs=crs or "")


def labelled(source: Path, grid: GeoBox = GRID) -> AnyArray:
    """Whether each pixel (y, x) is labelled."""
    return (
        LabelShapes(source, grid, Legend(("a",)), "class").rasterize(grid, "invalid", all_touched=False).labels
        != NO_LABEL
    )


def ring(*corners: tuple[float, float]) -> Polygon:
    """A polygon whose corners are columns and rows of the grid."""
    return Polygon([(LEFT + STEP * column, TOP - STEP * row) for column, row in corners])


SQUARE = ring((5, 5), (40, 5), (40, 40), (5, 40))
TRIANGLE = ring((5, 5), (40, 40), (5, 40))
RIGHT_HALF = ring((30, 10), (60, 10), (60, 30), (30, 30))
# Each shape is invalid; behind it the area that it means.
INVALID = {
    "a spike": (ring((5, 5), (40, 5), (40, 20), (65, 20.3), (40, 20), (40, 40), (5, 40)), SQUARE),
    "a collapsed edge": (ring((5, 5), (60, 5.2), (5, 5), (40, 40), (5, 40)), TRIANGLE),
    "parts that overlap": (MultiPolygon([SQUARE, RIGHT_HALF]), shapely.union(SQUARE, RIGHT_HALF)),
    "a ring around itself twice": (
        Polygon([*SQUARE.exterior.coords, *ring((10, 10), (20, 10), (20, 20), (10, 20)).exterior.coords]),
        SQUARE,
    ),
    "an hourglass": (
        ring((5, 5), (41, 39), (41, 5), (5, 39)),
        shapely.union(ring((5, 5), (23, 22), (5, 39)), ring((41, 5), (41, 39), (23, 22))),
    ),
    "no area": (ring((5, 5), (60, 50), (5, 5)), Polygon()),
}


@pytest.mark.parametrize("fault", INVALID)
def test_a_repaired_shape_labels_the_pixels_whose_centre_is_in_its_area(tmp_path: Path, fault: str) -> None:
    shape, area = INVALID[fault]
    assert not shape.is_valid
    # The second shape keeps the label file from being without any label.
    other = ring((1, 80), (4, 80), (4, 84), (1, 84))
    expected = rasterize([s for s in (area, other) if not s.is_empty], GRID.shape, transform=GRID.affine) > 0
    np.testing.assert_array_equal(labelled(write(tmp_path / "a.geojson", shape, other)), expected)


def test_repaired_shapes_are_counted_with_the_area_that_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overlapping = MultiPolygon([SQUARE, RIGHT_HALF])
    read_features(write(tmp_path / "a.geojson", INVALID["a spike"][0], overlapping, SQUARE), "class")
    overlap = shapely.intersection(SQUARE, RIGHT_HALF).area
    text = f"source=a.geojson shapes=2 area_before={122500 * 2 + 60000:g} area_after={122500 * 2 + 60000 - overlap:g}"
    assert f"event=shapes_repaired {text} area_changed={overlap:g}" in caplog.text


def test_valid_shapes_are_not_changed_and_not_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shapes = [SQUARE, LineString(RIGHT_HALF.exterior.coords), Point(LEFT, TOP)]
    features = read_features(write(tmp_path / "a.geojson", *shapes), "class")
    assert [a.wkb for a in features.shapes] == [shape.wkb for shape in shapes]
    to_grid(features, GRID)
    assert "event=shapes" not in caplog.text


def test_clipped_shapes_are_counted_with_the_area_that_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "eopipe")
    # The surroundings end 10 pixels beside the grid.
    half_outside = ring((-20, 10), (0, 10), (0, 20), (-20, 20))
    to_grid(read_features(write(tmp_path / "a.geojson", half_outside, SQUARE), "class"), GRID)
    assert "event=shapes_clipped source=a.geojson shapes=1 area_outside_percent=50" in caplog.text


@pytest.mark.parametrize("name", ["split, 20 degrees wide", "in one piece", "at 0 to 360 degrees", "one piece, hole"])
def test_shapes_across_180_degrees_label_the_pixels_whose_centre_they_hold(tmp_path: Path, name: str) -> None:
    grid = at_180_degrees()
    to_degrees = Transformer.from_crs(grid.crs, "EPSG:4326", always_xy=True)

    def in_degrees(*corners: tuple[float, float]) -> list[tuple[float, float]]:
        """Corners in columns and rows as degrees of -180 to 180."""
        return [to_degrees.transform(*(grid.affine * corner)) for corner in corners]

    def eastern(path: Any) -> AnyArray:
        return np.array([(x % 360, y) for x, y in path])

    outer = in_degrees((5.2, 5.3), (64.9, 8.1), (60.2, 40.4), (9.7, 33.3))
    hole = in_degrees((20.2, 15.3), (45.9, 16.1), (40.2, 25.4))
    wide = (MultiPolygon([box(170, -30, 180, 10), box(-180, -30, -170, 10)]), box(170, -30, 190, 10))
    shape, meaning = {
        "split, 20 degrees wide": wide,
        "in one piece": (Polygon(outer), Polygon(eastern(outer))),
        "at 0 to 360 degrees": (Polygon(eastern(outer)), Polygon(eastern(outer))),
        "one piece, hole": (Polygon(outer, [hole]), Polygon(eastern(outer), [eastern(hole)])),
    }[name]
    cols, rows = np.meshgrid(np.arange(70) + 0.5, np.arange(90) + 0.5)
    x, y = to_degrees.transform(*(grid.affine * (cols, rows)))
    centres = shapely.points(x % 360, y)
    # On an edge both answers are right: a fiftieth of a pixel is left out.
    is_clear = shapely.distance(meaning.boundary, centres) > 0.02 * STEP / 111_000
    result = labelled(write(tmp_path / "a.geojson", shape, crs=None), grid)
    np.testing.assert_array_equal(result[is_clear], shapely.contains(meaning, centres)[is_clear])


def test_shapes_at_0_to_360_degrees_label_a_grid_in_degrees(tmp_path: Path) -> None:
    grid = GeoBox((40, 40), Affine(0.1, 0, -177, 0, -0.1, 4), "EPSG:4326")
    result = labelled(write(tmp_path / "a.geojson", box(184, 1, 186, 3), crs=None), grid)
    expected = np.zeros((40, 40), bool)
    expected[10:30, 10:30] = True
    np.testing.assert_array_equal(result, expected)


def test_a_wide_shape_across_180_degrees_has_few_vertices(tmp_path: Path) -> None:
    shape = MultiPolygon([box(100, -30, 180, 10), box(-180, -30, -100, 10)])
    features = read_features(write(tmp_path / "a.geojson", shape, crs=None), "class")
    assert shapely.get_num_coordinates(to_grid(features, at_180_degrees())).sum() < 20_000


def test_shapes_that_are_split_at_180_degrees_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    across = Polygon([(179.9, 0), (-179.9, 0), (-179.9, 1), (179.9, 1)])
    features = read_features(write(tmp_path / "a.geojson", across, box(179, 3, 180, 4), crs=None), "class")
    assert "event=shapes_split_at_180_degrees source=a.geojson shapes=1" in caplog.text
    halves = MultiPolygon([box(179.9, 0, 180, 1), box(-180, 0, -179.9, 1)])
    assert features.shapes[0].symmetric_difference(halves).area < 1e-9


def test_a_shape_around_a_pole_contains_it(tmp_path: Path) -> None:
    shape = Polygon([(-179, -80), (0, -70), (179, -80), (170, -89)])
    features = read_features(write(tmp_path / "a.geojson", shape, crs=None), "class")
    assert shapely.contains_xy(features.shapes[0], np.arange(-179.5, 180), -89.5).all()


@pytest.mark.parametrize("shape", [box(-180, -90, 180, 90), box(-170, -80, 170, 80)])
def test_a_shape_around_the_world_is_not_split(tmp_path: Path, shape: Polygon) -> None:
    features = read_features(write(tmp_path / "a.geojson", shape, crs=None), "class")
    assert features.shapes[0].equals(shape)


def test_more_vertices_than_fit_are_refused_before_they_are_made(tmp_path: Path) -> None:
    # In EPSG:3857 the grid reaches from one end of the world to the other.
    around_the_world = box(-20_000_000, -5_000_000, 20_000_000, 1_000_000)
    features = read_features(write(tmp_path / "a.geojson", around_the_world, crs="EPSG:3857"), "class")
    with pytest.raises(
        BadInputError, match=r"a.geojson has \d\d,\d{3},\d{3} vertices around the grid.* at most 10,000"
    ):
        to_grid(features, at_180_degrees())
