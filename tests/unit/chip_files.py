"""Small GeoTIFF chips with places around the world, as users have them."""

from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray


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
