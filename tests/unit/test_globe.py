"""Geometries across the antimeridian are found, and their grids are small."""

from pathlib import Path
from typing import Any

import numpy as np
import pyogrio.raw
import pytest
import shapely
from builders import write_features
from hypothesis import given
from hypothesis import strategies as st
from pyproj import CRS
from scenery import Catalog, Run, search_outputs
from shapely.geometry import LinearRing, box, mapping, shape

from eopipe.errors import BadInputError, UsageError
from eopipe.planning.project_draft import read_area
from eopipe.stac.choose_grid import choose_grid
from eopipe.stac.query import area_geometry
from eopipe.stac.write import located
from eopipe.text_files import read_json
from eopipe.tiles.globe import (
    DEVIATION_M,
    common_bounds,
    counter_clockwise,
    from_crs,
    intersects,
    outline_of,
    split,
    transformer,
    unwrap,
)
from eopipe.tiles.grid import crs_fields, crs_of_fields, make_grid
from eopipe.warp.footprints import footprint, grid_extent

TENTHS = st.integers(-1800, 1799).map(lambda n: n / 10)


def wrapped(west: float, south: float, width: float, height: float, *, cut: bool) -> dict[str, Any]:
    """A box anywhere, written as catalogs write it: cut at 180 degrees, or with edges that jump."""
    whole = box(west, south, west + width, south + height)
    if cut:
        return dict(mapping(split(whole)))
    ring = [[x - 360 if x > 180 else x, y] for x, y in whole.exterior.coords]
    return {"type": "Polygon", "coordinates": [ring]}


@given(TENTHS, st.integers(-80, 70), st.integers(1, 90), st.integers(1, 10), st.booleans())
def test_a_place_in_one_piece_has_its_size_wherever_it_lies(
    west: float, south: int, width: int, height: int, cut: bool
) -> None:
    polygon = unwrap(wrapped(west, south, width, height, cut=cut))
    assert polygon.area == pytest.approx(width * height)
    again = split(polygon)
    assert again.area == pytest.approx(width * height)
    assert again.bounds[0] >= -180
    assert again.bounds[2] <= 180


@given(TENTHS, TENTHS, st.integers(1, 20), st.integers(1, 20), st.booleans(), st.booleans())
def test_two_places_meet_as_they_would_anywhere_else(
    west: float, other_west: float, width: int, breadth: int, cut: bool, cut_too: bool
) -> None:
    # Off the tenths, so that no two edges are one.
    a = wrapped(west, 0, width, 1, cut=cut)
    b = wrapped(other_west + 0.05 - (360 if other_west > 179.9 else 0), 0, breadth, 1, cut=cut_too)
    distance = (other_west + 0.05 - west) % 360
    assert intersects(unwrap(a), unwrap(b)) == (distance < width or 360 - distance < breadth)


def test_the_whole_earth_stays_the_whole_earth() -> None:
    assert unwrap(dict(mapping(box(-180, -90, 180, 90)))).area == pytest.approx(360 * 180)


def test_a_hole_moves_with_its_polygon() -> None:
    outer = [[170, 0], [-170, 0], [-170, 9], [170, 9], [170, 0]]
    hole = [[178, 3], [-178, 3], [-178, 6], [178, 6], [178, 3]]
    polygon = unwrap({"type": "Polygon", "coordinates": [outer, hole]})
    assert polygon.area == pytest.approx(20 * 9 - 4 * 3)


def test_a_box_across_180_degrees_is_cut_in_two() -> None:
    geometry = area_geometry(None, (179.0, -17.0, -179.5, -16.0))
    assert geometry is not None
    assert geometry["type"] == "MultiPolygon"
    assert shape(geometry).area == pytest.approx(1.5)


@pytest.mark.parametrize("bbox", [(-170.0, 0.0, -175.0, 1.0), (5.0, 0.0, 5.0, 1.0), (179.0, 0.0, 181.0, 1.0)])
def test_a_box_whose_sides_are_mixed_up_is_a_mistake(bbox: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        area_geometry(None, bbox)


def item(west: float, south: float, code: str | None) -> dict[str, Any]:
    asset = {"href": "red.tif", "proj:transform": [0.001, 0, west, 0, -0.001, south + 1], "proj:shape": [1000, 1000]}
    properties = {"proj:code": code} if code else {}
    return {
        "id": "x",
        "properties": properties,
        "assets": {"red": asset},
        "geometry": wrapped(west, south, 1, 1, cut=True),
    }


@given(TENTHS, st.integers(-80, 70), st.integers(1, 90), st.booleans(), st.booleans())
def test_rings_become_counter_clockwise_and_holes_clockwise_anywhere(
    west: float, south: int, width: int, cut: bool, is_reversed: bool
) -> None:
    geometry = wrapped(west, south, width, 5, cut=cut)
    is_multiple = geometry["type"] == "MultiPolygon"
    polygons = geometry["coordinates"] if is_multiple else [geometry["coordinates"]]
    turned = [[ring[::-1] if is_reversed else ring for ring in rings] for rings in polygons]
    result = counter_clockwise(geometry | {"coordinates": turned if is_multiple else turned[0]})
    outer = [ring for rings in (result["coordinates"] if is_multiple else [result["coordinates"]]) for ring in rings]
    for ring in outer:
        x, y = np.array(ring).T
        assert LinearRing(np.column_stack([np.unwrap(x, period=360), y])).is_ccw
    hole = [[x, y] for x, y in box(0.4, 0.4, 0.6, 0.6).exterior.coords]
    shell = [[x, y] for x, y in box(0, 0, 1, 1).exterior.coords]
    for ring in (hole, hole[::-1]):
        result = counter_clockwise({"type": "Polygon", "coordinates": [shell, ring]})
        assert [LinearRing(ring).is_ccw for ring in result["coordinates"]] == [True, False]


@pytest.mark.parametrize("crs", ["EPSG:32633", "EPSG:3035", "EPSG:4326", "EPSG:3031", "EPSG:32701"])
def test_the_outline_of_a_grid_is_counter_clockwise(crs: str) -> None:
    degrees = crs == "EPSG:4326"
    grid = make_grid((10, 45, 11, 46) if degrees else (5e5, 8e6, 6e5, 81e5), crs, 0.01 if degrees else 1000.0, (0, 0))
    geometry, _ = located([outline_of(grid)])
    assert counter_clockwise(geometry) == geometry


def test_what_is_no_geojson_is_not_turned() -> None:
    for value in ({}, {"type": "Polygon"}, {"type": "Polygon", "coordinates": [["x"]]}, {"type": "Point"}):
        assert counter_clockwise(value) == value


@given(st.integers(-70, 70), st.floats(0.1, 3), st.floats(0.1, 3))
def test_the_grid_across_180_degrees_is_as_small_as_the_area(south: int, before: float, after: float) -> None:
    area = area_geometry(None, (180 - before, south, after - 180, south + 1))
    grid_across = choose_grid([item(179.5, south, None)], ("red",), area, "auto", 100.0)
    other_area = area_geometry(None, (174 - before, south, 174 + after, south + 1))
    grid_elsewhere = choose_grid([item(173.5, south, None)], ("red",), other_area, "auto", 100.0)
    assert grid_across.shape[0] <= grid_elsewhere.shape[0] * 1.2
    assert grid_across.shape[1] <= grid_elsewhere.shape[1] * 1.2 + 2


def test_a_grid_of_degrees_goes_on_beyond_180() -> None:
    area = area_geometry(None, (179.0, -17.0, -179.0, -16.0))
    grid = choose_grid([item(179, -17, "EPSG:4326")], ("red",), area, "EPSG:4326", None)
    assert grid.shape == (1000, 2000)
    chosen = choose_grid([item(179, -17, "EPSG:4326")], ("red",), area, "auto", 10.0)
    assert str(chosen.crs) in ("EPSG:32701", "EPSG:32760")


def test_a_map_that_is_cut_at_180_degrees_is_refused() -> None:
    area = area_geometry(None, (179.0, -17.0, -179.0, -16.0))
    with pytest.raises(UsageError, match="EPSG:3857 is discontinuous"):
        choose_grid([item(179, -17, None)], ("red",), area, "EPSG:3857", 10.0)


@pytest.mark.parametrize("cut", [True, False])
def test_the_tiles_across_180_degrees_are_those_of_anywhere_else(
    catalog: Catalog, tmp_path: Path, run: Run, cut: bool
) -> None:
    for shift in (0, 10):
        for x in range(-3, 4):
            # Tile t0 extends from 179.5 to 180.5.
            scene = catalog.add(f"t{x}_{shift}", {"red": catalog_pixels()})
            scene["geometry"] = wrapped((179.5 + x - shift + 180) % 360 - 180, 0, 1, 1, cut=cut)
    tile_names = {}
    for shift in (0, 10):
        sides = [(side - shift + 180) % 360 - 180 for side in (179.0, 180.7)]
        area = ("--bbox", sides[0], 0.1, sides[1], 0.9)
        arguments = (*area, "--crs", "EPSG:32701", "--resolution", 500, "--assets", "red")
        folder = tmp_path / str(shift)
        run("search", "--catalog", catalog.write(), *search_outputs(folder), *arguments).ends(0)
        tile_names[shift] = sorted(p.stem.partition("_")[0] for p in (folder / "items").glob("*.geojson"))
        assert read_json(folder / "grid.json")["shape"][1] < 800
    assert tile_names[0] == tile_names[10] == ["t-1", "t0", "t1"]


def catalog_pixels() -> Any:
    import numpy as np

    return np.ones((8, 8), np.uint8)


def test_the_box_around_boxes_is_the_narrowest_one() -> None:
    assert common_bounds([(170, 0, 180, 1)]) == (170, 0, 180, 1)
    assert common_bounds([(-180, 0, 180, 1), (5, -1, 6, 2)]) == (-180, -1, 180, 2)
    assert common_bounds([(177, 0, -178, 1), (-170, 3, -160, 4)]) == (177, 0, -160, 4)
    assert common_bounds([(-147, 0, 120, 1), (150, 0, -180, 1)]) == (-147, 0, 180, 1)


# A place in each CRS (its centre), of which every place around is on Earth: also around both poles and across 180.
PLACES = {
    "EPSG:32633": (5e5, 8e6),
    "EPSG:32660": (8.3e5, 1e5),
    "EPSG:3857": (2.0037e7, 8.4e6),
    "EPSG:3035": (4.3e6, 3.2e6),
    "EPSG:3031": (0.0, 0.0),
    "EPSG:3413": (0.0, 0.0),
    "EPSG:6931": (1000.0, -500.0),
    "EPSG:4326": (179.0, 20.0),
    "+proj=sinu +lon_0=0 +R=6371007.181 +units=m": (-7.6e6, 5.5e6),
}


@given(
    st.sampled_from(sorted(PLACES)),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.sampled_from([1e2, 1e4, 3e5]),
    st.floats(0.2, 5),
)
def test_the_area_of_a_crs_has_the_same_places_in_degrees(
    crs: str, right: float, up: float, size: float, shape_ratio: float
) -> None:
    scale = 1e-5 if crs == "EPSG:4326" else 1.0
    x, y = PLACES[crs][0] + right * size * scale, PLACES[crs][1] + up * size * scale
    half = np.array([size * scale, size * scale * shape_ratio / 2]) / 2
    area = box(x - half[0], y - half[1], x + half[0], y + half[1])
    degrees = from_crs(area, crs)
    assert degrees.is_valid
    west, south, east, north = degrees.bounds
    assert -180 <= west <= east <= 180
    assert -90 <= south <= north <= 90
    # Places of the area and around it, but for those as near to its edge as an edge in degrees may be off.
    random = np.random.default_rng(0)
    places = np.array([x, y]) + random.uniform(-2, 2, (400, 2)) * half
    off = DEVIATION_M * scale * 3 + 1e-6 * size * scale
    away = np.abs(np.abs(places - [x, y]) - half).min(1) > off
    inside = (np.abs(places - [x, y]) < half).all(1)
    longitude, latitude = transformer(crs, "EPSG:4326").transform(*places.T)
    longitude = (np.asarray(longitude) + 180) % 360 - 180
    is_in_degrees = shapely.contains_xy(degrees, longitude, latitude)
    assert np.array_equal(is_in_degrees[away], inside[away])


def test_an_area_around_a_pole_contains_it_also_with_its_edge_or_a_corner_there() -> None:
    for west, south in ((-500, -500), (0, -500), (0, 0)):
        area = from_crs(box(west, south, 1000, 1000), "EPSG:3031")
        assert area.bounds[1] == -90
        corner = {(-500, -500): 360, (0, -500): 180, (0, 0): 90}[west, south]
        # The pole is a line in degrees, as long as the angle that the area has there.
        assert area.intersection(box(-180, -90, 180, -90 + 1e-7)).area / 1e-7 == pytest.approx(corner, rel=1e-3)


def test_a_ring_of_a_catalog_that_circles_a_pole_contains_it() -> None:
    ring = [[longitude, -80 - longitude / 100] for longitude in range(-150, 181, 30)]
    geometry = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    area = unwrap(geometry)
    assert area.bounds[1] == -90
    assert area.area == pytest.approx(360 * 10, rel=0.02)


def test_a_hole_of_a_crs_is_a_hole_in_degrees() -> None:
    ring = box(-9000, -9000, 9000, 9000).difference(box(-4000, -4000, 4000, 4000))
    area = from_crs(ring, "EPSG:3413")
    longitudes = np.linspace(-180, 180, 37)
    near, far = (np.full(37, 90 - metres / 111_000) for metres in (1500, 7000))
    assert not shapely.contains_xy(area, longitudes, near).any()
    assert shapely.contains_xy(area, longitudes[1:-1], far[1:-1]).all()


def test_edges_of_a_wide_area_follow_their_curve() -> None:
    wide = from_crs(box(0, 3e6, 9e6, 7e6), "EPSG:3035")
    along = np.linspace(0, 9e6, 999)
    edge = transformer("EPSG:3035", "EPSG:4326").transform(along, np.full(999, 3e6))
    distances = shapely.distance(wide.boundary, shapely.points(*edge)) * 111_195
    assert distances.max() <= DEVIATION_M


@pytest.mark.parametrize("suffix", ["geojson", "gpkg"])
def test_an_area_with_a_crossing_edge_is_two_triangles_and_is_said_to_be_repaired(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    bow = shapely.Polygon([[10, 45], [10.1, 45.1], [10.1, 45], [10, 45.1], [10, 45]])
    file = tmp_path / f"area.{suffix}"
    if suffix == "gpkg":
        pyogrio.raw.write(file, np.array([shapely.to_wkb(bow)]), [], [], geometry_type="Polygon", crs="EPSG:4326")
    else:
        write_features(file, (None, {}), (bow, {}))
    area = shape(read_area(file))
    assert area.is_valid
    assert area.area == pytest.approx(0.1 * 0.1 / 2)
    assert f"event=area_repaired area={file.name} outlines=1 reason='Self-intersection" in caplog.text


@pytest.mark.parametrize("east", [150, 170, 180])
def test_a_box_wider_than_half_the_earth_stays_wide(east: int) -> None:
    geometry = area_geometry(None, (-170.0, -10.0, float(east), 10.0))
    assert geometry is not None
    assert unwrap(geometry).area == pytest.approx(20 * (east + 170))


def test_a_crs_without_a_place_on_earth_is_refused() -> None:
    with pytest.raises(BadInputError, match="no place on Earth"):
        from_crs(box(9e7, 9e7, 9.1e7, 9.1e7), "EPSG:3035")


@pytest.mark.parametrize(
    ("crs", "code"),
    [
        ("EPSG:32633", "EPSG:32633"),
        ("ESRI:54009", "ESRI:54009"),
        (CRS("EPSG:32633").to_wkt(), "EPSG:32633"),
        ("+proj=sinu +lon_0=0 +R=6371007.181 +units=m", None),
    ],
    ids=["code", "other authority", "WKT of a code", "no code"],
)
def test_the_crs_of_a_document_is_a_code_or_wkt2(crs: str, code: str | None) -> None:
    fields = crs_fields(make_grid((0, 0, 10, 10), crs, 1.0, (0, 0)))
    assert fields["proj:code"] == code
    assert ("proj:wkt2" in fields) == (code is None)
    assert CRS.from_user_input(crs_of_fields(fields)) == CRS.from_user_input(crs)


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize(
    ("crs", "bounds"),
    [
        ("EPSG:32701", (170_000, 8_130_000, 190_000, 8_150_000)),
        ("EPSG:4326", (179.6, -16.8, 180.4, -16.2)),
        ("EPSG:4326", (-179.9, -16.8, -179.6, -16.2)),
    ],
)
def test_a_scene_across_180_degrees_covers_the_grids_in_it(
    crs: str, bounds: tuple[float, float, float, float], cut: bool
) -> None:
    grid = make_grid(bounds, crs, 10.0 if crs == "EPSG:32701" else 0.01, (0, 0))
    area = footprint(item(179.5, -17, None) | {"geometry": wrapped(179.5, -17, 1, 1, cut=cut)}, grid)
    assert area.buffer(1e-9).contains(grid_extent(grid))
