"""A GDAL library, whichever is at hand, through its C interface: what it sees of a raster, as JSON.

Run as a program of its own, since two libraries of GDAL do not get along in one process:
`python gdal.py libgdal.so NAME [NAME ...]`.
"""

import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
from ctypes import byref, c_char_p, c_double, c_int, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

INT32, READ, RASTER = 5, 0, 2


@dataclass(frozen=True)
class Gdal:
    """One library, with its version, as (3, 10, 3), and whether it has the Zarr driver."""

    library: str
    version: tuple[int, ...]
    zarr: str

    def see(self, name: str) -> dict[str, Any]:
        """What the library sees of a raster: place, size, pixels by band; or the error that it tells."""
        return _ask(self.library, name)


def at_hand() -> list[Gdal]:
    """The libraries of rasterio and of the osgeo package, the system's, and that which EOPIPE_GDAL names."""
    places = [ctypes.util.find_library("gdal"), os.environ.get("EOPIPE_GDAL")]
    for package in ("rasterio", "gdal_wheel", "osgeo"):
        found = find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            places += map(str, sorted(Path(folder).parent.glob(f"{package}.libs/libgdal*")))
    told = [(place, _ask(place)) for place in dict.fromkeys(places) if place]
    return [Gdal(place, tuple(value["version"]), value["zarr"]) for place, value in told]


@cache
def _ask(library: str, *names: str) -> dict[str, Any]:
    # The libraries that a wheel brings lie beside it.
    beside = os.environ | {"LD_LIBRARY_PATH": str(Path(library).parent)}
    done = subprocess.run(
        [sys.executable, __file__, library, *names], capture_output=True, text=True, check=True, timeout=60, env=beside
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _library(path: str) -> Any:
    # What stands beside a wheel's library, so that it finds its grids and CRS.
    for data in Path(path).parent.parent.glob("*/**/proj.db"):
        os.environ.setdefault("PROJ_DATA", str(data.parent))
    gdal = ctypes.CDLL(path)
    for name, kind in (
        ("GDALOpenEx", c_void_p),
        ("GDALGetRasterBand", c_void_p),
        ("GDALGetDriverByName", c_void_p),
        ("GDALGetProjectionRef", c_char_p),
        ("GDALVersionInfo", c_char_p),
        ("CPLGetLastErrorMsg", c_char_p),
        ("GDALGetMetadataItem", c_char_p),
    ):
        getattr(gdal, name).restype = kind
    gdal.CPLPushErrorHandler(gdal.CPLQuietErrorHandler)
    gdal.GDALAllRegister()
    return gdal


def _about(gdal: Any) -> dict[str, Any]:
    number = int(gdal.GDALVersionInfo(b"VERSION_NUM"))
    driver = c_void_p(gdal.GDALGetDriverByName(b"Zarr"))
    codecs = driver.value and gdal.GDALGetMetadataItem(driver, b"COMPRESSORS", None)
    version = (number // 1_000_000, number // 10_000 % 100, number // 100 % 100)
    return {"version": version, "zarr": codecs.decode() if codecs else ""}


def _see(gdal: Any, name: str) -> dict[str, Any]:
    source = c_void_p(gdal.GDALOpenEx(name.encode(), RASTER, None, None, None))
    if not source.value:
        return {"error": gdal.CPLGetLastErrorMsg().decode()}
    numbers = (c_double * 6)()
    placed = gdal.GDALGetGeoTransform(source, byref(numbers)) == 0
    wide, high = gdal.GDALGetRasterXSize(source), gdal.GDALGetRasterYSize(source)
    pixels, failed = [], 0
    for band in range(1, gdal.GDALGetRasterCount(source) + 1):
        values = (c_int * (wide * high))()
        one = c_void_p(gdal.GDALGetRasterBand(source, band))
        failed |= gdal.GDALRasterIO(one, READ, 0, 0, wide, high, byref(values), wide, high, INT32, 0, 0)
        pixels.append([list(values[row * wide : (row + 1) * wide]) for row in range(high)])
    return {
        "transform": list(numbers) if placed else None,
        "wkt": gdal.GDALGetProjectionRef(source).decode(),
        "pixels": None if failed else pixels,
        "error": gdal.CPLGetLastErrorMsg().decode() if failed else "",
    }


if __name__ == "__main__":
    opened = _library(sys.argv[1])
    print(json.dumps(_see(opened, sys.argv[2]) if len(sys.argv) > 2 else _about(opened)))
