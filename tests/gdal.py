"""The available GDAL libraries through their C interface: how each reads a raster, as JSON.

Run as a program of its own, since a process cannot load two GDAL libraries:
`python gdal.py libgdal.so NAME [NAME ...]`.
"""

import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import count, takewhile
from pathlib import Path
from typing import Any

INT32, READ, RASTER = 5, 0, 2


@dataclass(frozen=True)
class Gdal:
    """One library, its version, such as (3, 10, 3), and the codecs of its Zarr driver, empty if it has none."""

    library: str
    version: tuple[int, ...]
    zarr: str

    def read(self, name: str) -> dict[str, Any]:
        """A raster as the library reads it: transform, CRS, pixels by band; or its error."""
        return _call(self.library, name)


def available_libraries() -> list[Gdal]:
    """The libraries of rasterio and of the osgeo package, that of the system, and that named by EOPIPE_GDAL."""
    paths = [ctypes.util.find_library("gdal"), os.environ.get("EOPIPE_GDAL")]
    for package in ("rasterio", "gdal_wheel", "osgeo"):
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            paths += map(str, sorted(Path(folder).parent.glob(f"{package}.libs/libgdal*")))
    answers = {path: _call(path) for path in dict.fromkeys(paths) if path}
    return [Gdal(path, tuple(answer["version"]), answer["zarr"]) for path, answer in answers.items()]


@cache
def _call(library: str, *names: str) -> dict[str, Any]:
    # The libraries in a wheel are beside it.
    variables = os.environ | {"LD_LIBRARY_PATH": str(Path(library).parent)}
    result = subprocess.run(
        [sys.executable, __file__, library, *names],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=variables,
    )
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def _library(path: str) -> Any:
    # The data beside the library of a wheel, with its grids and CRS.
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
        ("GDALGetRasterCategoryNames", POINTER(c_char_p)),
    ):
        getattr(gdal, name).restype = kind
    gdal.CPLPushErrorHandler(gdal.CPLQuietErrorHandler)
    gdal.GDALAllRegister()
    return gdal


def _version(gdal: Any) -> dict[str, Any]:
    number = int(gdal.GDALVersionInfo(b"VERSION_NUM"))
    driver = c_void_p(gdal.GDALGetDriverByName(b"Zarr"))
    codecs = driver.value and gdal.GDALGetMetadataItem(driver, b"COMPRESSORS", None)
    version = (number // 1_000_000, number // 10_000 % 100, number // 100 % 100)
    return {"version": version, "zarr": codecs.decode() if codecs else ""}


def _read(gdal: Any, name: str) -> dict[str, Any]:
    source = c_void_p(gdal.GDALOpenEx(name.encode(), RASTER, None, None, None))
    if not source.value:
        return {"error": gdal.CPLGetLastErrorMsg().decode()}
    numbers = (c_double * 6)()
    has_transform = gdal.GDALGetGeoTransform(source, byref(numbers)) == 0
    width, height = gdal.GDALGetRasterXSize(source), gdal.GDALGetRasterYSize(source)
    pixels, failed = [], 0
    names = gdal.GDALGetRasterCategoryNames(c_void_p(gdal.GDALGetRasterBand(source, 1)))
    for band in range(1, gdal.GDALGetRasterCount(source) + 1):
        values = (c_int * (width * height))()
        source_band = c_void_p(gdal.GDALGetRasterBand(source, band))
        failed |= gdal.GDALRasterIO(source_band, READ, 0, 0, width, height, byref(values), width, height, INT32, 0, 0)
        pixels.append([list(values[row * width : (row + 1) * width]) for row in range(height)])
    return {
        "transform": list(numbers) if has_transform else None,
        "wkt": gdal.GDALGetProjectionRef(source).decode(),
        "categories": [name.decode() for name in takewhile(bool, map(names.__getitem__, count()))] if names else [],
        "pixels": None if failed else pixels,
        "error": gdal.CPLGetLastErrorMsg().decode() if failed else "",
    }


if __name__ == "__main__":
    opened = _library(sys.argv[1])
    print(json.dumps(_read(opened, sys.argv[2]) if len(sys.argv) > 2 else _version(opened)))
