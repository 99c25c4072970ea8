"""A raster that is cut short is reported as damaged wherever one is opened, and a whole one never is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox
from rasterio.enums import Resampling
from scenery import CRS, LEFT, STEP, TOP, write_raster

from eopipe.chips.chip_files import opened
from eopipe.errors import IntegrityError
from eopipe.fetch.cog_window import write_window
from eopipe.fetch.range_reader import LocalRangeReader
from eopipe.labels.kinds import Legend
from eopipe.labels.sources import LabelSource, ReadOptions, label_band, labelled_in_file
from eopipe.tiles.geotiff import open_map, read_window
from eopipe.tiles.raster_end import truncation

PIXELS = np.random.default_rng(1).integers(1, 9999, (200, 200), np.uint16)
JPEG = {"driver": "JP2OpenJPEG", "QUALITY": 100, "REVERSIBLE": "YES", "compress": None, "nodata": None}
PLAIN = {"driver": "GTiff", "compress": "none"}
RASTERS: dict[str, dict[str, Any]] = {
    "COG": {},
    "tiles": {"driver": "GTiff", "tiled": True},
    "strips": PLAIN,
    "BigTIFF": PLAIN | {"BIGTIFF": "YES", "ENDIANNESS": "BIG"},
    "directory last": PLAIN | {"INTERLEAVE": "BAND"},
    "overviews and mask": {"driver": "GTiff", "nodata": None},
    "JPEG 2000": JPEG,
}
# GDAL repeats the last four bytes of a block of a cloud-optimised GeoTIFF behind it; no pixel is in them.
TRAILERS = {"COG": 4}


def whole_raster(folder: Path, kind: str) -> Path:
    """A raster of a kind, with all that it can have in it."""
    path = write_raster(folder / ("red.jp2" if kind == "JPEG 2000" else "red.tif"), PIXELS, **RASTERS[kind])
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        if kind == "directory last":
            with rasterio.open(path, "r+") as file:
                file.update_tags(note="much longer than before " * 9)
        elif kind == "overviews and mask":
            with rasterio.open(path, "r+") as file:
                file.write_mask(PIXELS > 100)
                file.build_overviews([2, 4], Resampling.nearest)
    return path


@pytest.fixture(scope="module", params=RASTERS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, int]:
    """A raster, its bytes, and how many of them it needs."""
    path = whole_raster(tmp_path_factory.mktemp("raster"), request.param)
    return path, (data := path.read_bytes()), len(data) - TRAILERS.get(request.param, 0)


@settings(max_examples=150)
@given(part=st.floats(0, 1, exclude_max=True), is_head=st.booleans())
def test_a_raster_that_is_cut_at_any_byte_is_truncated_and_a_whole_one_is_not(
    whole: tuple[Path, bytes, int], part: float, is_head: bool
) -> None:
    path, data, needed = whole
    path.write_bytes(data)
    assert truncation(path) == ""
    length = int(part * min(needed, 1500 if is_head else needed))
    path.write_bytes(data[:length])
    assert truncation(path).startswith(f"is truncated: it has {length} of at least ")


@pytest.mark.parametrize("kind", ["GTiff", "COG"])
def test_a_raster_with_blocks_that_were_never_written_is_whole(tmp_path: Path, kind: str) -> None:
    path = write_raster(tmp_path / "red.tif", np.zeros((300, 300), np.uint16), driver=kind, SPARSE_OK="TRUE")
    assert truncation(path) == ""


def as_label(path: Path) -> object:
    legend = Legend(("low", "high"), bins=(5000,))
    source = LabelSource(label_band(path), legend, ReadOptions("", None, "invalid", False, "nearest"))
    return labelled_in_file(source, None)


def as_chip(path: Path) -> object:
    with opened(path, path.name) as source:
        return source.read()


def as_map(path: Path) -> object:
    with open_map(path) as source:
        return source.read()


def as_window(path: Path) -> None:
    grid = GeoBox(PIXELS.shape, Affine(STEP, 0, LEFT, 0, -STEP, TOP), CRS)
    write_window(LocalRangeReader(path, path.name), [grid], path.with_name("part.tif"), path.name)


@pytest.mark.parametrize("opens", [as_label, as_chip, as_map, as_window])
@pytest.mark.parametrize("kind", ["COG", "strips", "directory last"])
def test_a_cut_raster_is_damaged_at_every_door_and_none_takes_it_for_one_without_place(
    tmp_path: Path, opens: Callable[[Path], object], kind: str
) -> None:
    path = whole_raster(tmp_path, kind)
    opens(path)
    path.with_name("part.tif").unlink(missing_ok=True)
    data = path.read_bytes()
    for length in (0, 3, *range(8, 600, 16), len(data) // 2, len(data) * 99 // 100, len(data) - 9):
        path.write_bytes(data[:length])
        with pytest.raises(IntegrityError, match=r"red\.tif.*truncated"):
            opens(path)
        assert [*tmp_path.iterdir()] == [path]


def test_a_map_whose_blocks_were_overwritten_is_damaged_as_one_that_is_cut(tmp_path: Path) -> None:
    path = write_raster(tmp_path / "classes.tif", PIXELS)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2].ljust(len(data), b"\xff"))
    with open_map(path) as file, pytest.raises(IntegrityError, match=r"classes\.tif is damaged: .*; run predict again"):
        read_window(file, slice(0, 200), slice(0, 200))
