"""Small GeoTIFF chips with places around the world, as users have them."""

from pathlib import Path
from typing import Any

import numpy as np
from builders import write_features
from scenery import Run
from shapely import MultiPolygon, box

from eopipe.arrays import AnyArray
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.splits import SPLITS, Split, read_split
from eopipe.tiles.store import Tiles


def write_chip(
    path: Path, pixels: AnyArray, *, crs: str = "EPSG:32633", left: float = 5e5, top: float = 5e6, **other: Any
) -> Path:
    """Write a GeoTIFF of pixels (band, y, x) or (y, x), of 10 m each."""
    import rasterio
    from rasterio.transform import from_origin

    bands = pixels[None] if pixels.ndim == 2 else pixels
    count, height, width = bands.shape
    tags, names = other.pop("tags", {}), other.pop("names", ())
    profile = {"driver": "GTiff", "count": count, "height": height, "width": width, "dtype": bands.dtype, "crs": crs}
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(path, "w", **profile, transform=from_origin(left, top, 10, 10), **other) as file:
        file.write(bands)
        file.update_tags(**tags)
        for number, name in enumerate(names, 1):
            file.set_band_description(number, name)
    return path


def numbered_chip(chip: int, shape: tuple[int, int], bands: int = 2) -> AnyArray:
    """Pixels (band, y, x) that encode chip, band and position, none of them 0."""
    height, width = shape
    first = 1 + 1000 * chip + 20_000 * np.arange(bands)[:, None, None]
    return np.asarray(first + np.arange(height * width).reshape(shape), np.uint16)


def write_pairs(folder: Path, shapes: list[tuple[int, int]]) -> None:
    """Write images S2/k_S2.tif in UTM zones 1, 2, … and masks labels/k_label.tif of (row + column + k) mod 3."""
    for chip, (height, width) in enumerate(shapes):
        place = {"crs": f"EPSG:{32601 + chip % 60}", "left": 5e5 + 1000 * chip}
        write_chip(
            folder / f"S2/{chip:02d}_S2.tif", numbered_chip(chip, (height, width)), names=("red", "nir"), **place
        )
        mask = np.add.outer(np.arange(height), np.arange(width)) + chip
        write_chip(folder / f"labels/{chip:02d}_label.tif", (mask % 3).astype(np.int16), **place)


EDGE = 32


def separable(number: int) -> tuple[AnyArray, AnyArray]:
    """Two bands (band, y, x) of noise and a mask (y, x) of squares, which their difference tells."""
    dice = np.random.default_rng(number)
    mask = np.repeat(np.repeat(dice.integers(0, 2, (4, 4)), EDGE // 4, 0), EDGE // 4, 1)
    bands = 1000 + dice.normal(0, 60, (2, EDGE, EDGE)) + np.stack([250 * mask, -250 * mask])
    return bands.astype(np.uint16), mask.astype(np.uint8)


def write_world(folder: Path, zones: int = 12, chips: int = 5) -> None:
    """Pairs zNN-K in UTM zones of 30 degrees' distance, at 5 to 45 degrees north; 180 degrees cuts those of zone 1."""
    from pyproj import Transformer

    for zone in range(zones):
        crs = f"EPSG:{32601 + 5 * zone}"
        change = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
        for chip in range(chips):
            x, y = change.transform(-177.0 + 30 * zone if zone else -180.0, 5.0 + 40 * chip / max(chips - 1, 4))
            place: dict[str, Any] = {"crs": crs, "left": round(x) - 5 * EDGE, "top": round(y) + 5 * EDGE}
            bands, mask = separable(100 * zone + chip)
            write_chip(folder / f"images/z{zone:02d}-{chip}.tif", bands, names=("red", "nir"), **place)
            write_chip(folder / f"masks/z{zone:02d}-{chip}.tif", mask, **place)


def import_set(run: Run, folder: Path) -> tuple[object, ...]:
    """Import images/*.tif and masks/*.tif to `set`, with the zone as group; the arguments that name its stores."""
    patterns = ("--images", folder / "images/*.tif", "--masks", folder / "masks/*.tif")
    done = run("import", folder / "set", *patterns, "--classes", "land", "water", "--group", "^[^-]+")
    assert done.code == 0, done.stderr
    tiles, labels = (sorted((folder / "set" / name).iterdir()) for name in ("tiles", "labels"))
    return "--tiles", *tiles, "--labels", *labels


def write_regions(path: Path, zones: int = 12) -> None:
    """Polygons zoneNN of 30 degrees around the chips of each zone; the first one is on both sides of 180 degrees."""
    middles = [-177 + 30 * zone if zone else -180 for zone in range(zones)]
    boxes = {f"zone{n:02d}": [(max(m - 15, -180), m + 15)] for n, m in enumerate(middles)}
    boxes["zone00"].append((165, 180))
    shapes = [MultiPolygon([box(west, 0, east, 60) for west, east in parts]) for parts in boxes.values()]
    write_features(path, *((shape, {"name": name}) for name, shape in zip(boxes, shapes, strict=True)))


def accuracy_of_maps(maps: list[Path], labels: list[Path], split: Path) -> float:
    """The share of correct pixels in the test chips, slot by slot."""
    import rasterio

    numbers = []
    for path in maps:
        with rasterio.open(path) as file:
            numbers.append(file.read(1))
    truth = [Tiles(path).read("label") for path in labels]
    slots = [
        (store, np.s_[row : row + EDGE, column : column + EDGE])
        for store, row, column in read_split(split).samples["test"]
    ]
    return float(np.mean([numbers[store][slot] == truth[store][slot] for store, slot in slots]))


def chips_of_splits(folder: Path) -> dict[str, list[str]]:
    """The ids of the chips of each split in `split.json`."""
    places = ChipPlaces.of([Tiles(path) for path in sorted((folder / "set/tiles").iterdir())])
    assert places is not None
    samples = read_split(folder / "split.json").samples
    return {name: [places.records[number]["id"] for number in places.indices(rows)] for name, rows in samples.items()}


def made_split(**fields: Any) -> Split:
    """A split file without chips, with these fields."""
    if "samples" in fields:
        fields["samples"] = {name: np.array(rows, np.int64).reshape(-1, 3) for name, rows in fields["samples"].items()}
    needed = {"scenes": ["a"], "classes": ["one"], "chip": 16, "plan": {"method": "blocks", "min_valid": 0.5}}
    by_split = {"samples": {name: [] for name in SPLITS}, "pixels": {name: {} for name in SPLITS}}
    return Split.model_validate(needed | by_split | {"audit": {"gap_pixels": {}}} | fields)
