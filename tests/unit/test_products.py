"""Products of finished maps: polygons, styles, entropy and zones, of rasters whose truth is known exactly."""

import csv
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pyogrio.raw
import pytest
import rasterio
from affine import Affine
from odc.geo.geobox import GeoBox
from pyproj import CRS, Geod, Transformer
from rio_cogeo.cogeo import cog_validate
from scenery import Run
from shapely import Point, box, from_wkb, to_wkb

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.finished_maps import read_finished_maps
from eopipe.inference.map_files import new_map
from eopipe.publish import verify
from eopipe.reporting.products import entropy, sieved
from eopipe.stages.products import products
from eopipe.text_table import write_csv
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.ground import pixel_hectares, shape_hectares

COLORS = {0: (230, 159, 0), 1: (0, 114, 178), 2: (27, 122, 67)}
NAMES = ("land", "wet & dry", "forest")
UTM = Affine(10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_000.0)
# The first ten rows and columns of a map there.
SQUARE = box(500_000, 4_999_900, 500_100, 5_000_000)
Paths = dict[str, tuple[Path, ...]]


def write_map(
    folder: Path, numbers: AnyArray, affine: Affine = UTM, crs: str = "EPSG:32633", **tags: Any
) -> tuple[Path, Path]:
    """A class map with its colours, and probabilities of 0.8 for the class and 0.1 for the two others."""
    folder.mkdir()
    grid, names = GeoBox(numbers.shape, affine, crs), NAMES
    with new_map(folder / "classes.tif", grid, MapFormat("uint8", 255, ("class",), tags, COLORS)) as file:
        file.write(numbers.astype(np.uint8), 1)
    with new_map(folder / "probabilities.tif", grid, MapFormat("uint16", 65_535, names, tags)) as file:
        file.scales = (1e-4,) * len(names)
        shares = np.stack([np.where(numbers == number, 8000, 1000) for number in range(len(names))])
        file.write(np.where(numbers == 255, 65_535, shares).astype(np.uint16))
    return folder / "classes.tif", folder / "probabilities.tif"


def inputs(*pairs: tuple[Path, Path]) -> Paths:
    return {"classes": tuple(first for first, _ in pairs), "probabilities": tuple(second for _, second in pairs)}


def make(folder: Path, *maps: AnyArray | tuple[Path, Path], name: str = "out", **options: Any) -> Path:
    """The folder of the products of maps, or of maps of these numbers."""
    pairs = [write_map(folder / "map", pair) if isinstance(pair, np.ndarray) else pair for pair in maps]
    products(**inputs(*pairs), products=folder / name, **options)
    return folder / name


def polygons(folder: Path, layer: str = "classes") -> dict[str, Any]:
    """The columns of a layer of polygons, with the shapes and the CRS."""
    meta, _, wkb, fields = pyogrio.raw.read(folder / "polygons.gpkg", layer=layer)
    columns = dict(zip(meta["fields"].tolist(), fields, strict=True))
    return columns | {"shape": from_wkb(wkb), "crs": meta["crs"]}


def write_zones(path: Path, zones: dict[str, Any], crs: str = "EPSG:32633") -> Path:
    values, shapes = np.array([*zones], object), np.array([*zones.values()], object)
    kind = "Unknown" if {shape.geom_type for shape in shapes} != {"Polygon"} else "Polygon"
    pyogrio.raw.write(path, to_wkb(shapes), [values], ["name"], driver="GPKG", geometry_type=kind, crs=crs)
    return path


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "zones.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "-inf", '=H("a",1)\n-1', "-", "+49", "=a\r=b"]
)
def test_a_spreadsheet_executes_no_text_of_a_table(tmp_path: Path, text: str) -> None:
    write_csv(tmp_path / "t.csv", [[text, "ok"], ["a", text]])
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        quoted = f"'{text}".replace("\r", "\n")
        assert list(csv.reader(file)) == [[quoted, "ok"], ["a", quoted]]


def test_numbers_and_plain_texts_of_a_table_stay_as_they_are(tmp_path: Path) -> None:
    row = ["-1", "-0.25", "-2.5e-05", -3, 4.5, None, "", "a=1", "it's", "w\u00e4ld", "a,b"]
    write_csv(tmp_path / "t.csv", [row])
    text = '-1,-0.25,-2.5e-05,-3,4.5,,,a=1,it\'s,w\u00e4ld,"a,b"\n'
    assert (tmp_path / "t.csv").read_bytes() == text.encode()


def degree_cell_hectares(south: float, north: float, west: float, east: float) -> float:
    """The exact area of a cell between parallels and meridians, by the authalic latitude of WGS 84 (Snyder 1987)."""
    a, f = 6_378_137.0, 1 / 298.257223563
    e = math.sqrt(f * (2 - f))

    def zone(latitude: float) -> float:
        s = math.sin(math.radians(latitude))
        return (1 - e**2) * (s / (1 - e**2 * s**2) + math.atanh(e * s) / e)

    return a**2 * math.radians(east - west) * (zone(north) - zone(south)) / 2 / 10_000


def halves() -> AnyArray:
    """Land left of water, 40 by 60 pixels, with a forest of 3 by 3 pixels inside the land, and a column of no data."""
    numbers = np.zeros((40, 60), np.uint8)
    numbers[:, 30:] = 1
    numbers[10:13, 10:13] = 2
    numbers[:, 59] = 255
    return numbers


def test_polygons_are_the_patches_of_the_map_with_their_class_and_its_name(tmp_path: Path) -> None:
    layer = polygons(make(tmp_path, halves(), minimum_mapping_unit_ha=0))
    by_class = dict(zip(layer["class"].tolist(), layer["shape"], strict=True))
    left, top = 500_000.0, 5_000_000.0
    forest = box(left + 100, top - 130, left + 130, top - 100)
    assert by_class[2].equals(forest)
    assert by_class[0].equals(box(left, top - 400, left + 300, top).difference(forest))
    assert by_class[1].equals(box(left + 300, top - 400, left + 590, top)), "pixels without data are in no polygon"
    assert sorted(zip(layer["class"].tolist(), layer["name"], strict=True)) == [*enumerate(NAMES)]
    assert layer["crs"] == "EPSG:32633"


def test_a_patch_below_the_minimum_mapping_unit_becomes_what_is_around_it(tmp_path: Path) -> None:
    # The forest has 9 pixels of 0.01 hectares.
    pair = write_map(tmp_path / "map", halves())
    units = {"above": 0.0901, "below": 0.11}
    above, below = (polygons(make(tmp_path, pair, name=n, minimum_mapping_unit_ha=ha)) for n, ha in units.items())
    assert sorted(above["class"]) == [0, 1, 2]
    assert sorted(below["class"]) == [0, 1]
    assert above["area_ha"].sum() == pytest.approx(below["area_ha"].sum(), rel=1e-9)


def test_a_patch_stays_where_it_has_the_minimum_area_and_goes_where_part_of_a_pixel_is_missing(tmp_path: Path) -> None:
    # Patches of 1 to 9 pixels, each in a row of its own.
    numbers = np.zeros((19, 20), np.uint8)
    for size in range(1, 10):
        numbers[2 * size - 1, 5 : 5 + size] = 1
    (finished,) = read_finished_maps(*([path] for path in write_map(tmp_path / "map", numbers)))
    hectares = float(pixel_hectares(finished.grid, slice(9, 10), slice(10, 11))[0, 0])
    for minimum in (0, 0.5, 1, 1.01, 1.5, 2, 4, 4.1, 4.5, 4.9, 5, 8.99, 9, 9.5):
        remaining = (sieved(finished, minimum * hectares)[1::2] == 1).sum(1)
        assert remaining.tolist() == [size if size >= minimum else 0 for size in range(1, 10)], minimum


def test_a_patch_between_pixels_without_data_stays_and_no_data_never_grows(tmp_path: Path) -> None:
    numbers = np.full((40, 40), 255, np.uint8)
    numbers[5:25, 5:25], numbers[30, 30], numbers[10, 10] = 1, 2, 255
    layer = polygons(make(tmp_path, numbers, minimum_mapping_unit_ha=0.5))
    areas = dict(zip(layer["class"].tolist(), (shape.area for shape in layer["shape"]), strict=True))
    assert areas == {1: 399 * 100.0, 2: 100.0}


def test_areas_are_those_of_the_ellipsoid_and_not_of_the_projection(tmp_path: Path) -> None:
    # Far from the central meridian UTM is 0.2 % too large.
    far = Affine(100.0, 0.0, 820_000.0, 0.0, -100.0, 5_000_000.0)
    numbers = np.zeros((50, 50), np.uint8)
    numbers[10:20, 10:40] = 1
    layer = polygons(make(tmp_path, write_map(tmp_path / "map", numbers, far)))
    area = layer["area_ha"][layer["class"].tolist().index(1)]
    # Independently: by an equal-area projection, its edges densified to a pixel.
    shape = layer["shape"][layer["class"].tolist().index(1)].segmentize(100.0)
    to_equal_area = Transformer.from_crs("EPSG:32633", "EPSG:6933", always_xy=True)
    east, north = to_equal_area.transform(*np.array(shape.exterior.coords).T)
    equal_area = abs(np.sum(east[:-1] * north[1:] - east[1:] * north[:-1])) / 2 / 10_000
    assert area == pytest.approx(equal_area, rel=1e-5)
    assert abs(area / 300 - 1) > 1e-3


def test_areas_in_degrees_are_exact_for_long_parallels_and_large_pixels(tmp_path: Path) -> None:
    # 120 by 4 pixels of a quarter degree: an edge of 30 degrees is far from a geodesic.
    affine = Affine(0.25, 0.0, 5.0, 0.0, -0.25, 60.0)
    pair = write_map(tmp_path / "map", np.ones((4, 120), np.uint8), affine, "EPSG:4326")
    exact = degree_cell_hectares(59, 60, 5, 35)
    zone = write_zones(tmp_path / "zone.gpkg", {"all": box(5, 59, 35, 60)}, "EPSG:4326")
    folder = make(tmp_path, pair, zones=zone)
    assert polygons(folder)["area_ha"] == pytest.approx([exact], rel=1e-5)
    (row,) = rows(folder)
    assert [float(row[name]) for name in ("zone_ha", "mapped_ha")] == pytest.approx([exact, exact], rel=1e-5)


@pytest.mark.parametrize("crs", ["EPSG:32633", "EPSG:3857", "EPSG:4326", "EPSG:2154"])
def test_the_area_of_each_pixel_is_that_of_its_outline_in_any_window(crs: str) -> None:
    affine = Affine(1e-3, 0, 2.0, 0, -1e-3, 50.0) if crs == "EPSG:4326" else Affine(100.0, 0, 6e5, 0, -100.0, 65e5)
    grid, geod = GeoBox((100, 90), affine, crs), Geod(ellps="GRS80" if crs == "EPSG:2154" else "WGS84")
    proj = CRS(crs)
    to_degrees = Transformer.from_crs(proj, proj.geodetic_crs, always_xy=True)
    y, x = slice(3, 97), slice(7, 90)
    hectares = pixel_hectares(grid, y, x)
    assert hectares.shape == (94, 83)
    for row, column in ((3, 7), (50, 40), (96, 89), (20, 61)):
        corners = [affine * (column + right, row + down) for right, down in ((0, 0), (0, 1), (1, 1), (1, 0))]
        area = geod.polygon_area_perimeter(*to_degrees.transform(*zip(*corners, strict=True)))[0] / 10_000
        assert hectares[row - 3, column - 7] == pytest.approx(area, rel=1e-6)


def test_the_hole_of_a_polygon_is_no_part_of_its_area() -> None:
    crs, ring = CRS("EPSG:32633"), box(500_000, 0, 501_000, 1000)
    hole = box(500_100, 100, 500_200, 300)
    whole, part, difference = shape_hectares(np.array([ring, hole, ring.difference(hole)], object), crs)
    assert difference == pytest.approx(whole - part, rel=1e-9)
    assert (whole, part) == (pytest.approx(100, rel=1e-3), pytest.approx(2, rel=1e-3))


def test_products_are_the_same_whatever_the_blocks_of_the_map_and_the_windows_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    # Larger than a window in both directions.
    numbers = np.kron(rng.integers(0, 3, (30, 35)), np.ones((20, 20), int)).astype(np.uint8)
    numbers[rng.random(numbers.shape) < 0.1] = 2
    first, shares = write_map(tmp_path / "map", numbers)
    striped = tmp_path / "striped" / "classes.tif"
    striped.parent.mkdir()
    with rasterio.open(first) as source:
        profile = source.profile | {"driver": "GTiff", "tiled": False, "blockysize": 1, "compress": None}
        profile = {key: value for key, value in profile.items() if key != "blockxsize"}
        with rasterio.open(striped, "w", **profile) as target:
            target.write(source.read())
            target.write_colormap(1, source.colormap(1))
    zone = write_zones(tmp_path / "zone.gpkg", {"a": Point(505_120, 4_994_880).buffer(700, quad_segs=500)})
    maps = {"tiled": first, "rows": striped}
    tiled, in_rows = (make(tmp_path, (path, shares), name=name, zones=zone) for name, path in maps.items())
    for name in ("polygons.gpkg", "entropy.tif", "zones.csv", "classes.qml"):
        assert (tiled / name).read_bytes() == (in_rows / name).read_bytes(), name
    # The corner of four windows is in the zone.
    rows_of_pixels, columns = np.mgrid[:600, :700]
    inside = numbers[np.hypot(columns + 0.5 - 512, rows_of_pixels + 0.5 - 512) < 70]
    (row,) = rows(tiled)
    counts = np.bincount(inside) / len(inside)
    assert [float(row[f"{name} share"]) for name in NAMES] == pytest.approx(counts.tolist(), abs=2e-4)


def test_a_layer_has_the_polygons_of_all_parts_that_it_is_written_in(tmp_path: Path) -> None:
    layer = polygons(make(tmp_path, np.indices((160, 160)).sum(0) % 2, minimum_mapping_unit_ha=0))
    assert np.bincount(layer["class"]).tolist() == [12_800, 12_800], "patches that touch at corners are apart"
    assert layer["area_ha"].sum() == pytest.approx(160 * 160 * 0.01, rel=1e-3)


def test_the_style_has_the_colours_of_the_colour_table_and_the_names_of_the_classes(tmp_path: Path) -> None:
    pair = write_map(tmp_path / "map", halves())
    folder = make(tmp_path, pair)
    renderer = ET.parse(folder / "classes.qml").getroot().find("pipe/rasterrenderer")
    assert renderer is not None
    assert renderer.attrib["type"] == "paletted"
    entries = {int(e.attrib["value"]): (e.attrib["color"], e.attrib["label"]) for e in renderer.iter("paletteEntry")}
    with rasterio.open(pair[0]) as file:
        table = file.colormap(1)
    colors = ["#{:02x}{:02x}{:02x}".format(*table[number][:3]) for number in range(3)]
    assert entries == dict(enumerate(zip(colors, NAMES, strict=True)))
    # QGIS takes a style of the name of the raster by itself.
    assert (folder / "classes.tif").read_bytes() == pair[0].read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {row["path"] for row in manifest["files"]} == {"classes.qml", "classes.tif", "entropy.tif", "polygons.gpkg"}
    verify(folder)


def test_the_entropy_is_zero_where_one_class_is_certain_and_one_where_all_are_equal() -> None:
    stored = np.array([[10_000, 0, 0], [2500, 2500, 2500], [5000, 5000, 0], [65_535] * 3, [0, 0, 0]], np.uint16)
    expected = [0, 10_000, round(10_000 * math.log(2) / math.log(3)), 65_535, 0]
    assert entropy(stored.T[:, None, :])[0].tolist() == expected


def test_the_entropy_is_a_cloud_optimised_file_on_the_grid_of_the_map(tmp_path: Path) -> None:
    pair = write_map(tmp_path / "map", np.tile(halves(), (20, 20)))
    path = make(tmp_path, pair) / "entropy.tif"
    assert cog_validate(path)[0]
    with rasterio.open(path) as file, rasterio.open(pair[0]) as classes:
        assert (file.crs, file.transform, file.shape) == (classes.crs, classes.transform, classes.shape)
        assert (file.nodata, file.scales, file.descriptions) == (65_535, (1e-4,), ("normalised entropy",))
        value = -(0.8 * math.log(0.8) + 0.2 * math.log(0.1)) / math.log(3)
        numbers = file.read(1)
        assert np.array_equal(numbers == 65_535, classes.read(1) == 255)
        assert np.unique(numbers).tolist() == [round(10_000 * value), 65_535]


def test_a_zone_has_the_hectares_and_shares_of_the_pixels_whose_centres_it_contains(tmp_path: Path) -> None:
    pair = write_map(tmp_path / "map", halves())
    left, top = 500_000.0, 5_000_000.0
    in_map = {
        # 20 pixels of land beside 30 of water, in 10 rows; it covers a third of a further row.
        "both": box(left + 100, top - 303, left + 600, top - 200),
        'forest, "old"': box(left + 100, top - 130, left + 130, top - 100),
        "outside": box(left + 10_000, top, left + 11_000, top + 1000),
    }
    # The file is in another CRS than the map.
    to_degrees = Transformer.from_crs("EPSG:32633", "EPSG:4326", always_xy=True)
    turned = {name: box(*to_degrees.transform_bounds(*shape.buffer(-0.5).bounds)) for name, shape in in_map.items()}
    for number, zones in enumerate((in_map, turned)):
        path = write_zones(tmp_path / f"{number}.gpkg", zones, "EPSG:4326" if number else "EPSG:32633")
        both, forest, outside = rows(make(tmp_path, pair, name=f"out{number}", zones=path))
        assert [row["zone"] for row in (both, forest, outside)] == [*in_map]
        # 29 columns of water: those of the last have no data.
        assert float(both["land ha"]) == pytest.approx(2.0, rel=1e-3)
        assert float(both["wet & dry ha"]) == pytest.approx(2.9, rel=1e-3)
        assert float(both["wet & dry share"]) == pytest.approx(29 / 49, abs=1e-5)
        assert float(both["mapped_ha"]) == pytest.approx(4.9, rel=1e-3)
        assert float(forest["forest share"]) == 1
        assert (outside["mapped_ha"], outside["land ha"], outside["land share"]) == ("0.0000", "0.0000", "")
    assert float(rows(tmp_path / "out0")[0]["zone_ha"]) == pytest.approx(5.15, rel=1e-3)


def test_cells_have_their_layers_and_files_and_a_zone_over_both_is_one_row(tmp_path: Path) -> None:
    sides = [Affine(100, 0, left, 0, -100, 5e6) for left in (745_000, 255_000)]
    west = write_map(tmp_path / "west", np.ones((50, 50)), sides[0], cell="utm33n")
    east = write_map(tmp_path / "east", np.full((50, 50), 2), sides[1], "EPSG:32634", cell="utm34n")
    (lon, lat), zone = Transformer.from_crs("EPSG:32634", "EPSG:4326", always_xy=True).transform(257_500, 4_997_500), {}
    zone["all"] = box(lon - 3, lat - 1, lon + 3, lat + 1)
    path = write_zones(tmp_path / "zone.gpkg", zone, "EPSG:4326")
    folder = make(tmp_path, west, east, zones=path)
    of_cells = {f"{name}.{cell}.{end}" for cell in ("utm33n", "utm34n")
                for name, end in (("classes", "tif"), ("classes", "qml"), ("entropy", "tif"))}  # fmt: skip
    names = {path.name for path in folder.iterdir()}
    assert names == of_cells | {"polygons.gpkg", "zones.csv", "manifest.json"}
    for cell, code in (("utm33n", 32633), ("utm34n", 32634)):
        assert polygons(folder, cell)["crs"] == f"EPSG:{code}"
    (row,) = rows(folder)
    assert row["map"] == ""
    assert float(row["wet & dry ha"]) == pytest.approx(2500, rel=3e-3)
    assert float(row["forest ha"]) == pytest.approx(2500, rel=3e-3)


def test_maps_of_two_images_have_a_row_each_and_are_not_added(tmp_path: Path) -> None:
    pairs = [write_map(tmp_path / name, np.full((20, 20), n), scenes=name) for n, name in enumerate(("s1", "s2"))]
    folder = make(tmp_path, *pairs, zones=write_zones(tmp_path / "zone.gpkg", {"a": SQUARE}))
    shares = [(row["map"], row["land share"]) for row in rows(folder)]
    assert shares == [("s1", "1.000000"), ("s2", "0.000000")]


def write_values(folder: Path) -> tuple[Path, Path]:
    folder.mkdir()
    values = np.repeat(np.array([[1.0, 3.0, np.nan, 7.0]], np.float32), 4, 0)
    grid, tags = GeoBox((4, 4), UTM, "EPSG:32633"), {"task": "regression", "quantity": "height", "unit": "m"}
    with new_map(folder / "classes.tif", grid, MapFormat("float32", math.nan, ("height",), tags)) as file:
        file.units = ("m",)
        file.write(values, 1)
    with new_map(folder / "probabilities.tif", grid, MapFormat("float32", math.nan, ("std", "scenes"), tags)) as file:
        file.write(np.stack([values, values]))
    return folder / "classes.tif", folder / "probabilities.tif"


def test_values_have_mean_and_deviation_of_each_zone_and_nothing_else(tmp_path: Path) -> None:
    pair = write_values(tmp_path / "map")
    path = write_zones(tmp_path / "zone.gpkg", {"left": box(500_000, 4_999_960, 500_030, 5_000_000)})
    folder = make(tmp_path, pair, zones=path)
    (row,) = rows(folder)
    figures = [float(row[f"{name} height (m)"]) for name in ("mean", "std")]
    assert figures == pytest.approx([2.0, 1.0], rel=1e-6)
    assert float(row["mapped_ha"]) == pytest.approx(0.08, rel=2e-3)
    assert {path.name for path in folder.iterdir()} == {"zones.csv", "manifest.json"}
    with pytest.raises(UsageError, match="task regression have no product but the statistics of zones"):
        make(tmp_path, pair, name="none")
    assert not (tmp_path / "none").exists()


def test_several_labels_of_a_pixel_are_each_summed_up(tmp_path: Path) -> None:
    grid, tags = GeoBox((10, 10), UTM, "EPSG:32633"), {"task": "multilabel"}
    presence = np.zeros((3, 10, 10), np.uint8)
    presence[0], presence[1, :, :5] = 1, 1
    presence[:, 0] = 255
    for name, dtype, nodata in (("classes", "uint8", 255), ("probabilities", "uint16", 65_535)):
        with new_map(tmp_path / f"{name}.tif", grid, MapFormat(dtype, nodata, NAMES, tags)) as file:
            file.write(presence.astype(dtype))
    path = write_zones(tmp_path / "zone.gpkg", {"all": SQUARE})
    pair = tmp_path / "classes.tif", tmp_path / "probabilities.tif"
    (row,) = rows(make(tmp_path, pair, zones=path))
    assert [row[f"{name} share"] for name in NAMES] == ["1.000000", "0.500000", "0.000000"]


def test_a_map_without_data_has_an_empty_layer(tmp_path: Path) -> None:
    assert len(polygons(make(tmp_path, np.full((8, 8), 255)))["class"]) == 0


def test_zones_that_cannot_be_used_are_named_and_nothing_is_left(tmp_path: Path, run: Run) -> None:
    classes, probabilities = write_map(tmp_path / "map", halves())
    write_zones(tmp_path / "far.gpkg", {"a": box(900_000, 0, 900_100, 100)})
    write_zones(tmp_path / "points.gpkg", {"a": Point(500_050, 4_999_950)})
    write_zones(tmp_path / "good.gpkg", {"a": SQUARE})
    cases: list[tuple[str, list[str], str]] = [
        ("none.gpkg", [], "none.gpkg"),
        ("far.gpkg", [], "no zone of"),
        ("points.gpkg", [], "has no polygons"),
        ("good.gpkg", ["--zone-name", "id"], "has no attribute id; it has name"),
        ("good.gpkg", ["--zone-layer", "b"], "has no layer b; it has good"),
    ]
    maps = ("--classes", classes, "--probabilities", probabilities, "--products", tmp_path / "out")
    for name, more, sentence in cases:
        run("products", *maps, "--zones", tmp_path / name, *more).ends(3, sentence)
        assert not (tmp_path / "out").exists()


def test_maps_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first = write_map(tmp_path / "first", halves())
    other = write_map(tmp_path / "other", halves()[:20], scenes="b")
    beyond = write_map(tmp_path / "beyond", np.full((8, 8), 7))
    local = write_map(tmp_path / "local", halves(), crs='LOCAL_CS["chips",UNIT["metre",1]]')
    cases = {
        "give one for each": {"classes": (first[0],), "probabilities": (first[1], other[1])},
        "on another grid": inputs((first[0], other[1])),
        "give maps of one model": inputs(first, write_values(tmp_path / "values")),
        "several maps have one name: classes, classes": inputs(first, first),
        "has the class number 7, but the classes are land, wet & dry, forest": inputs(beyond),
        "has no place on the Earth": inputs(local),
    }
    for sentence, pairs in cases.items():
        with pytest.raises(BadInputError, match=sentence):
            products(**pairs, products=tmp_path / "out")
