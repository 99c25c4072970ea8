"""The granule that `granule.py` maps: a catalog of Sentinel-2-like dates, and labelled polygons that agree with them.

The land is a net of bent fields of about nine hectares in four classes. Each class has its course of reflectance over
the year, each field a brightness of its own, and one in twelve the course of another class. Texture and sensor noise
are such that a band compresses to about ten of its sixteen bits, as real ones do. Clouds and their shadows are in the
pixels and in a mask of 20 m.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from landscape import field
from scipy.ndimage import gaussian_filter

BANDS, CLASSES = ("blue", "green", "red", "nir"), ("forest", "grass", "crop", "bare")
# The grid of tile 33TWL.
LEFT, TOP, STEP, CRS, TILE = 499_980.0, 5_100_000.0, 10.0, "EPSG:32633", "33TWL"
FIRST, SEASON_DAYS = date(2023, 3, 20), 240
# Edge of a field in pixels, and rows that are computed at a time.
FIELD, STRIP, NOISE = 30, 512, 38
VEGETATION, BARE_SOIL, CLOUD, SHADOW = 4, 5, 9, 3


def fields_at(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column, in the net of fields, of the field that each pixel is in."""
    y, x = rows[:, None].astype("float32"), columns[None].astype("float32")
    down = y + 9 * np.sin(x / 31) + 5 * np.sin((x + y) / 17) + 2 * FIELD
    across = x + 9 * np.sin(y / 27) + 5 * np.sin((x - y) / 19) + 2 * FIELD
    return (down / FIELD).astype("int32"), (across / FIELD).astype("int32")


def net(edge: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class, class that it looks like, and brightness of every field; neighbours are often of one class."""
    random, size = np.random.default_rng(5), (edge // FIELD + 6,) * 2
    regions = [gaussian_filter(random.normal(size=size), 3) for _ in CLASSES]
    chances = np.stack([region / region.std() + random.gumbel(0, 0.7, size) for region in regions])
    classes = chances.argmax(0).astype("uint8")
    looks = np.where(random.random(size) < 1 / 12, random.integers(len(CLASSES), size=size), classes).astype("uint8")
    return classes, looks, random.normal(0, 130, size).astype("int16")


def write_land(folder: Path, edge: int) -> None:
    """The class of every pixel as a raster, and what it looks like and its brightness as arrays for the dates."""
    if (folder / "truth.tif").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    of_class, of_looks, of_brightness = net(edge)
    classes, looks, brightness = (np.empty((edge, edge), dtype) for dtype in ("uint8", "uint8", "int16"))
    for start in range(0, edge, STRIP):
        rows = np.arange(start, min(edge, start + STRIP))
        place = fields_at(rows, np.arange(edge))
        classes[rows], looks[rows], brightness[rows] = of_class[place], of_looks[place], of_brightness[place]
    brightness += (110 * field(edge, 99, 61)).astype("int16") + (60 * field(edge, 98, 13)).astype("int16")
    np.save(folder / "looks.npy", looks)
    np.save(folder / "brightness.npy", brightness)
    write_raster(folder / "truth.tif", classes, STEP, nodata=255)


def write_raster(path: Path, pixels: np.ndarray, step: float, nodata: int) -> None:
    """A cloud-optimised GeoTIFF with its corner at the granule's."""
    import rasterio
    from rasterio.transform import from_origin

    size = {"height": pixels.shape[0], "width": pixels.shape[1], "count": 1, "dtype": pixels.dtype, "nodata": nodata}
    options = {"compress": "deflate", "predictor": 2, "level": 1, "blocksize": 1024, "overview_resampling": "nearest"}
    place = {"crs": CRS, "transform": from_origin(LEFT, TOP, step, step)}
    with rasterio.open(path, "w", driver="COG", **size, **options, **place) as file:
        file.write(pixels, 1)


def write_catalog(folder: Path, edge: int, dates: int) -> None:
    """A static catalog of dates, evenly spread over the growing season; two processes write it."""
    if (folder / "catalog.json").is_file():
        return
    days = [FIRST + timedelta(days=SEASON_DAYS * number // dates) for number in range(dates)]
    with get_context("fork").Pool(2) as pool:
        names = pool.map(partial(_write_date, folder, edge), enumerate(days), chunksize=1)
    links = [{"rel": "item", "href": f"./{name}/{name}.json"} for name in names]
    head = {"type": "Catalog", "stac_version": "1.0.0", "id": "granule", "description": "Made up"}
    (folder / "catalog.json").write_text(json.dumps(head | {"links": links}))


def _write_date(folder: Path, edge: int, numbered_day: tuple[int, date]) -> str:
    number, day = numbered_day
    name = f"S2A_{TILE}_{day:%Y%m%d}_0_L2A"
    scene, land = folder / name, folder.parent / "land"
    if (scene / f"{name}.json").is_file():
        return name
    scene.mkdir(parents=True, exist_ok=True)
    looks, brightness = (np.load(land / f"{kind}.npy", mmap_mode="r") for kind in ("looks", "brightness"))
    mask = cloud_mask(edge // 2, number)
    cloud, shadow = (mask == code for code in (CLOUD, SHADOW))
    random = np.random.default_rng(1000 + number)
    # Pieces of one long noise: deflate looks back 32 KB, so that repeats far away do not compress.
    noise = (NOISE * random.standard_normal(2**24 + STRIP * edge, "float32")).astype("int16")
    for band, name_of_band in enumerate(BANDS):
        pixels = np.empty((edge, edge), "uint16")
        means = np.array([reflectance(kind, day)[band] for kind in CLASSES], "int16")
        for start in range(0, edge, STRIP):
            rows = slice(start, min(edge, start + STRIP))
            values = means[looks[rows]] + brightness[rows]
            first = random.integers(2**24)
            values += noise[first : first + values.size].reshape(values.shape)
            of_mask = slice(start // 2, rows.stop // 2)
            values += np.int16(3600 - 300 * band) * _finer(cloud[of_mask])
            values -= (values >> 1) * _finer(shadow[of_mask])
            pixels[rows] = np.clip(values, 1, 16000)
        write_raster(scene / f"{name_of_band}.tif", pixels, STEP, nodata=0)
    write_raster(scene / "scl.tif", mask, 2 * STEP, nodata=0)
    (scene / f"{name}.json").write_text(json.dumps(_item(scene, edge, day, 100 * float(cloud.mean()))))
    return name


def _finer(mask: np.ndarray) -> np.ndarray:
    return mask.repeat(2, 0).repeat(2, 1).astype("int16")


def reflectance(kind: str, day: date) -> tuple[float, ...]:
    """Stored blue, green, red and nir of a class on a day."""
    of_year = day.timetuple().tm_yday
    summer, growth = np.exp(-(((of_year - 195) / 70) ** 2)), np.exp(-(((of_year - 160) / 35) ** 2))
    return {
        "forest": (300, 480, 380, 1700 + 1500 * summer),
        "grass": (420, 700, 650 - 120 * summer, 2000 + 1300 * summer),
        "crop": (620 - 200 * growth, 850 - 100 * growth, 1050 - 600 * growth, 1750 + 2000 * growth),
        "bare": (820, 1010, 1230, 1850),
    }[kind]


def cloud_mask(edge: int, number: int) -> np.ndarray:
    """Scene classification of a date: from almost none to half of it under clouds, with shadows to their north-west."""
    haze, share = field(edge, 300 + number, 61), (0.02, 0.5, 0.1, 0.3, 0.05, 0.2)[number % 6]
    cloud = haze > np.quantile(haze[::16, ::16], 1 - share)
    mask = np.where(field(edge, 400 + number, 31) > 1, BARE_SOIL, VEGETATION).astype("uint8")
    mask[:-24, :-16][cloud[24:, 16:]] = SHADOW
    mask[cloud] = CLOUD
    return mask


def _item(scene: Path, edge: int, day: date, cloud_cover: float) -> dict[str, Any]:
    from rasterio.warp import transform_geom
    from shapely.geometry import box, mapping

    outline = transform_geom(CRS, "EPSG:4326", mapping(box(LEFT, TOP - STEP * edge, LEFT + STEP * edge, TOP)))
    assets = {}
    for name in (*BANDS, "scl"):
        content, step = (scene / f"{name}.tif").read_bytes(), STEP * (2 if name == "scl" else 1)
        side, scaling = int(edge * STEP / step), {} if name == "scl" else {"scale": 0.0001, "offset": 0.0}
        assets[name] = {
            "href": f"./{name}.tif",
            "type": "image/tiff; application=geotiff; profile=cloud-optimized",
            "file:size": len(content),
            "file:checksum": f"1220{hashlib.sha256(content).hexdigest()}",
            "raster:bands": [{"nodata": 0, **scaling}],
            "proj:shape": [side, side],
            "proj:transform": [step, 0, LEFT, 0, -step, TOP],
        }
    properties = {"datetime": f"{day}T10:00:31Z", "eo:cloud_cover": round(cloud_cover, 2), "proj:code": CRS}
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "id": scene.name,
        "collection": "granule",
        "geometry": outline,
        "properties": properties | {"grid:code": f"MGRS-{TILE}"},
        "links": [],
        "assets": assets,
    }


def write_polygons(path: Path, edge: int, count: int) -> None:
    """Outlines of fields with their class, drawn two pixels inside of the edge, spread evenly over the granule."""
    if path.is_file():
        return
    import pyogrio.raw
    import shapely

    random, (of_class, *_), polygons = np.random.default_rng(6), net(edge), list[tuple[str, Any]]()
    first, last = 4, edge // FIELD
    places = random.permutation(list(product(range(first, last), repeat=2))).tolist()
    # One polygon in a square of places, so that all regions have some.
    square, used = (last - first) / math.ceil(count**0.5), set[tuple[int, int]]()
    for row, column in places:
        cell = (int((row - first) / square), int((column - first) / square))
        if len(polygons) < count and cell not in used and (outline := next(_outlines(row, column), None)):
            used.add(cell)
            polygons.append((CLASSES[of_class[row, column]], outline))
    names, shapes = zip(*polygons, strict=True)
    pyogrio.raw.write(
        path,
        geometry=shapely.to_wkb(np.array(shapes)),
        field_data=[np.array(names, object)],
        fields=np.array(["class"]),
        geometry_type="Polygon",
        crs=CRS,
        driver="GPKG",
    )


def _outlines(row: int, column: int) -> Iterator[Any]:
    """The outline of a field, in the coordinates of the granule, unless too little of it is left inside."""
    from rasterio.features import shapes
    from rasterio.transform import from_origin
    from shapely.geometry import shape

    top, left = (row - 4) * FIELD, (column - 4) * FIELD
    pixels = np.arange(4 * FIELD)
    down, across = fields_at(top + pixels, left + pixels)
    place = from_origin(LEFT + STEP * left, TOP - STEP * top, STEP, STEP)
    inside = ((down == row) & (across == column)).astype("uint8")
    for outline, _ in shapes(inside, inside == 1, transform=place):
        drawn = shape(outline).buffer(-2 * STEP).simplify(STEP / 2)
        if drawn.geom_type == "Polygon" and drawn.area > 20_000:
            yield drawn
