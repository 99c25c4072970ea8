"""A window of a remote COG holds the pixels of the original in their place, and costs only the blocks it needs."""

import json
import shutil
import struct
from collections import ChainMap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Loopback
from odc.geo.geobox import GeoBox
from pyproj import Transformer
from rasterio.shutil import copy
from rasterio.windows import Window
from remote_assets import loopback_session
from scenery import CRS, LEFT, STEP, TOP, Catalog, Run, numbered

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, EopipeError, IntegrityError, NoSpaceError, RefusedError, UpstreamError
from eopipe.fetch.cog_window import write_window
from eopipe.fetch.range_reader import LocalRangeReader, open_range_reader
from eopipe.publish import digest
from eopipe.text_files import write_json

SHARED = Path(__file__).parents[3] / "shared" / "data" / "sentinel-2-l2a-33t"
WHERE = "scene S, asset red"
TARGET_CRS = ("EPSG:32633", "EPSG:32634", "EPSG:3035", "EPSG:4326", "EPSG:3857")


class Counting(LocalRangeReader):
    """A file that notes what is read of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.received: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.received.append((start, length))
        return super().read(start, length)

    @property
    def bytes(self) -> int:
        return sum(length for _, length in self.received)


def raster(path: Path, pixels: AnyArray, **other: Any) -> Path:
    """Write a GeoTIFF of bands (band, y, x), in tiles of 64 pixels by default."""
    georeference = {"crs": CRS, "transform": Affine(STEP, 0, LEFT, 0, -STEP, TOP), "nodata": 0, "compress": "deflate"}
    tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64}
    count, height, width = pixels.shape
    size = {"driver": "GTiff", "count": count, "height": height, "width": width, "dtype": pixels.dtype}
    with rasterio.open(path, "w", **(size | georeference | tiles | other)) as file:
        file.write(pixels)
    return path


def noise(*shape: int, dtype: str = "uint16") -> AnyArray:
    """Pixels that no codec makes much smaller."""
    values = np.random.default_rng(7).integers(1, 250 if dtype.endswith("int8") else 9999, shape)
    return values.astype(dtype)


def grid_at(row: float, column: float, edge: int, crs: str = CRS, step: float = STEP) -> GeoBox:
    """A square grid around a pixel of the scenes of `raster`."""
    x, y = Transformer.from_crs(CRS, crs, always_xy=True).transform(LEFT + column * STEP, TOP - row * STEP)
    step = step / 111_320 if crs == "EPSG:4326" else step
    return GeoBox((edge, edge), Affine(step, 0, x - edge / 2 * step, 0, -step, y + edge / 2 * step), crs)


MIDDLE = grid_at(150, 200, 20)


def cut(whole: Path, grid: GeoBox = MIDDLE) -> Path:
    """The window of a file under a grid, beside it."""
    write_window(LocalRangeReader(whole), [grid], whole.with_name("part.tif"), WHERE)
    return whole.with_name("part.tif")


def same_place(whole: Path, part: Path) -> tuple[AnyArray, tuple[int, int]]:
    """Pixels of the window, which are those of the original at its position, and its first row and column."""
    with rasterio.open(whole) as original, rasterio.open(part) as window:
        shift = window.transform.c - original.transform.c, window.transform.f - original.transform.f
        column, row = shift[0] / original.transform.a, shift[1] / original.transform.e
        assert abs(row - round(row)) + abs(column - round(column)) < 1e-6
        box = Window(round(column), round(row), window.width, window.height)
        assert (window.crs, window.nodata, window.dtypes) == (original.crs, original.nodata, original.dtypes)
        for name in ("descriptions", "scales", "offsets", "colorinterp"):
            assert getattr(window, name) == getattr(original, name), name
        assert window.tags() == original.tags()
        np.testing.assert_array_equal(window.read_masks(), original.read_masks(window=box))
        pixels = window.read()
        np.testing.assert_array_equal(pixels, original.read(window=box))
        return pixels, (round(row), round(column))


def needed(whole: Path, grid: GeoBox) -> tuple[float, float, float, float]:
    """First and last row and column of the original under the grid, by the transform of every pixel edge."""
    rows, columns = np.mgrid[: grid.shape[0] + 1, : grid.shape[1] + 1]
    a = grid.affine
    with rasterio.open(whole) as file:
        to_file = Transformer.from_crs(str(grid.crs), file.crs.to_wkt(), always_xy=True)
        x, y = to_file.transform(a.c + a.a * columns, a.f + a.e * rows)
        t, (height, width) = file.transform, file.shape
    row, column = (y - t.f) / t.e, (x - t.c) / t.a
    clip = np.clip([row.min(), row.max()], 0, height), np.clip([column.min(), column.max()], 0, width)
    return (*clip[0], *clip[1])


LAYOUTS = [
    {"blockxsize": 16, "blockysize": 32},
    {"blockxsize": 128, "blockysize": 64},
    {"tiled": False, "blockxsize": None, "blockysize": 7},
    {"tiled": False, "blockxsize": None, "blockysize": 200},
]
CODECS = [
    {"compress": None},
    *({"compress": name, "predictor": n} for name in ("deflate", "lzw", "zstd") for n in (1, 2)),
]
INTERLEAVES = [{"interleave": "pixel"}, {"interleave": "band"}]
HEADS = [{}, {"BIGTIFF": "YES"}, {"ENDIANNESS": "BIG"}, {"BIGTIFF": "YES", "ENDIANNESS": "BIG"}]
OPTIONS = st.tuples(*map(st.sampled_from, (LAYOUTS, CODECS, INTERLEAVES, HEADS)))


@settings(max_examples=60)
@given(
    centre=st.tuples(st.floats(-10, 210), st.floats(-10, 310)),
    edge=st.integers(1, 90),
    step=st.sampled_from([3.0, 10.0, 25.0]),
    crs=st.sampled_from(TARGET_CRS),
    dtype=st.sampled_from(["uint8", "int16", "uint16", "float32"]),
    bands=st.integers(1, 3),
    options=OPTIONS,
)
@pytest.mark.exhaustive
def test_a_window_holds_the_pixels_of_the_original_in_their_place(
    tmp_path_factory: pytest.TempPathFactory,
    centre: tuple[float, float],
    edge: int,
    step: float,
    crs: str,
    dtype: str,
    bands: int,
    options: tuple[dict[str, Any], ...],
) -> None:
    folder = tmp_path_factory.mktemp("window")
    pixels = noise(bands, 200, 300, dtype=dtype)
    whole = raster(folder / "whole.tif", pixels, **dict(ChainMap(*options)))
    grid = grid_at(*centre, edge, crs, step)
    first, last, left, right = needed(whole, grid)
    if first == last or left == right:
        with pytest.raises(BadInputError, match="outside the grid"):
            cut(whole, grid)
        return
    window_pixels, (row, column) = same_place(whole, cut(whole, grid))
    height, width = window_pixels.shape[1:]
    assert (row <= max(first - 4, 0), column <= max(left - 4, 0)) == (True, True)
    assert (row + height >= min(last + 4, 200), column + width >= min(right + 4, 300)) == (True, True)
    shutil.rmtree(folder)


def test_what_a_file_says_of_its_bands_stays_but_for_statistics_of_the_whole(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", noise(2, 200, 300), nodata=None, photometric="minisblack")
    with rasterio.open(whole, "r+") as file:
        file.descriptions = ("red", "nir")
        file.scales, file.offsets = (1e-4, 1e-4), (-0.1, 0.0)
        file.update_tags(AREA_OR_POINT="Point", MAKER="somebody")
        file.update_tags(1, STATISTICS_MAXIMUM="9999", note="mine")
    same_place(whole, part := cut(whole))
    with rasterio.open(part) as file:
        assert file.tags(1) == {"note": "mine"}


@pytest.mark.parametrize("size", [{}, {"BIGTIFF": "YES"}])
def test_a_mask_inside_the_file_comes_along(tmp_path: Path, size: dict[str, str]) -> None:
    copy(masked(tmp_path / "plain.tif"), tmp_path / "whole.tif", driver="COG", BLOCKSIZE="64", **size)
    same_place(tmp_path / "whole.tif", cut(tmp_path / "whole.tif"))
    with rasterio.open(tmp_path / "part.tif") as part:
        assert 0.2 < (part.read_masks(1) == 0).mean() < 0.5


def test_a_turned_raster_keeps_its_place(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", noise(1, 200, 300), transform=Affine(STEP, 1, LEFT, 1, -STEP, TOP))
    with rasterio.open(cut(whole)) as part, rasterio.open(whole) as original:
        row, column = original.index(*part.xy(0, 0))
        assert (row, column) != (0, 0)
        box = ((row, row + part.height), (column, column + part.width))
        np.testing.assert_array_equal(part.read(), original.read(window=box))


def test_blocks_that_were_never_written_stay_nodata(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", np.zeros((1, 200, 300), np.uint16), nodata=7, SPARSE_OK="TRUE")
    with rasterio.open(whole) as file:
        profile = file.profile
    with rasterio.open(whole, "w", **profile, SPARSE_OK="TRUE") as file:
        file.write(noise(64, 64), 1, window=Window(64, 64, 64, 64))
    window_pixels, _ = same_place(whole, cut(whole, grid_at(96, 96, 120)))
    assert 0.5 < (window_pixels == 7).mean() < 1


@pytest.mark.parametrize(
    ("edge", "block", "area", "requests", "most"), [(2048, 128, 205, 5, 0.06), (512, 64, 500, 2, 1.08)]
)
def test_a_small_area_costs_a_small_part_of_the_file_and_blocks_side_by_side_one_request(
    tmp_path: Path, edge: int, block: int, area: int, requests: int, most: float
) -> None:
    remote = Counting(raster(tmp_path / "whole.tif", noise(1, edge, edge), blockxsize=block, blockysize=block))
    write_window(remote, [grid_at(edge / 2, edge / 2, area)], tmp_path / "part.tif", WHERE)
    assert remote.bytes < most * remote.size, f"{remote.bytes / remote.size:.3f} of the file"
    assert len(remote.received) <= requests, remote.received


def test_the_same_window_gives_the_same_bytes(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", noise(3, 512, 512), interleave="band")
    first, second = (cut(whole, grid_at(200, 200, 99)).read_bytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("crs", ["EPSG:32633", "EPSG:3035"])
@pytest.mark.parametrize("resampling", ["nearest", "cubic", "average"])
@pytest.mark.parametrize("step", [10.0, 31.0])
@pytest.mark.exhaustive
def test_preprocess_makes_the_same_of_a_window_as_of_the_whole(
    catalog: Catalog, run: Run, tmp_path: Path, crs: str, resampling: str, step: float
) -> None:
    shape = 400, 500
    pixels = {"red": numbered(shape), "blue": noise(*shape), "scl": noise(*shape, dtype="uint8") % 12}
    item = catalog.add("scene", pixels, shape=shape)
    grid, whole, part = grid_at(170, 300, 24, crs, step), catalog.root / "s0", tmp_path / "part"
    write_json(tmp_path / "grid.json", {"crs": crs, "shape": list(grid.shape), "transform": list(grid.affine)[:6]})
    part.mkdir()
    for folder in (whole, part):
        (folder / "scene.json").write_text(json.dumps(item))
    for name in pixels:
        cut(whole / f"{name}.tif", grid).rename(part / f"{name}.tif")
        assert (part / f"{name}.tif").stat().st_size < 0.7 * (whole / f"{name}.tif").stat().st_size
    for folder, name in ((whole, "whole.zarr"), (part, "part.zarr")):
        arguments = ("--scene", folder, "--grid", tmp_path / "grid.json", "--tiles", tmp_path / name, "--bands", "red")
        run("preprocess", *arguments, "blue", "--resampling", resampling, "--chunk", 16, "--shard", 32).ends(0)
    assert digest(tmp_path / "whole.zarr") == digest(tmp_path / "part.zarr")


def photo(*shape: int) -> AnyArray:
    """Smooth pixels, which lossy codecs hardly change."""
    rows, columns = np.mgrid[: shape[1], : shape[2]]
    return np.stack([(rows // (band + 2) + columns // 3) % 200 for band in range(shape[0])]).astype("uint8")


KINDS: dict[str, tuple[AnyArray, dict[str, Any]]] = {
    "JPEG, YCbCr": (photo(3, 200, 300), {"compress": "jpeg", "photometric": "ycbcr", "interleave": "pixel"}),
    "JPEG, grey": (photo(1, 200, 300), {"compress": "jpeg"}),
    "RGB": (photo(3, 200, 300), {"photometric": "rgb", "compress": "webp", "webp_lossless": True}),
    "RGBA, planar": (photo(4, 200, 300), {"photometric": "rgb", "interleave": "band", "alpha": "yes"}),
    "RGB, 16 bits": (noise(3, 200, 300), {"photometric": "rgb"}),
    "palette": (noise(1, 200, 300, dtype="uint8"), {"photometric": "palette"}),
    "bits": (photo(1, 200, 300) % 2, {"nbits": 1}),
    "12 bits": (noise(1, 200, 300) % 4096, {"nbits": 12}),
    "int8": (noise(1, 200, 300, dtype="int8"), {}),
    "int64": (noise(1, 200, 300, dtype="int64"), {}),
    "float64": (noise(2, 200, 300, dtype="float64") / 3, {"predictor": 3, "nodata": -1.0}),
    "complex": (noise(1, 200, 300, dtype="complex64"), {"nodata": None}),
    "pairs of integers": (noise(1, 200, 300, dtype="complex64"), {"dtype": "complex_int16"}),
    "one strip": (noise(1, 200, 300), {"tiled": False, "blockxsize": None, "blockysize": 200, "compress": None}),
    "lerc": (noise(1, 200, 300), {"compress": "lerc_zstd"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_of_any_kind_of_geotiff_has_the_pixels_that_gdal_decodes(tmp_path: Path, kind: str) -> None:
    pixels, options = KINDS[kind]
    nodata = None if "JPEG" in kind or "RGB" in kind else 0
    whole = raster(tmp_path / "whole.tif", pixels, **{"nodata": nodata} | options)
    if kind == "palette":
        with rasterio.open(whole, "r+") as file:
            file.write_colormap(1, {value: (value, 255 - value, 7, 255) for value in range(256)})
    same_place(whole, cut(whole))
    if kind == "palette":
        with rasterio.open(whole) as original, rasterio.open(tmp_path / "part.tif") as part:
            assert part.colormap(1) == original.colormap(1)


def masked(path: Path, **options: Any) -> Path:
    """Write a GeoTIFF of two bands with a mask inside of the file."""
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"):
        raster(path, noise(2, 200, 300), nodata=None, **options)
        with rasterio.open(path, "r+") as file:
            file.write_mask(noise(200, 300) % 3 > 0)
    return path


@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("rows", [{}, {"tiled": False, "blockxsize": None, "blockysize": 7}])
def test_a_window_is_the_same_however_few_blocks_are_copied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interleave: str, rows: dict[str, Any]
) -> None:
    whole = masked(tmp_path / "whole.tif", interleave=interleave, **rows)
    contents = set()
    for step in (1 << 25, 50_000, 1):
        monkeypatch.setattr("eopipe.fetch.cog_window.STEP", step)
        same_place(whole, part := cut(whole, grid_at(100, 150, 180)))
        contents.add(part.read_bytes())
    assert len(contents) == 1


def test_a_file_that_is_cut_before_its_mask_is_an_error(tmp_path: Path) -> None:
    whole = masked(tmp_path / "whole.tif")
    plain = raster(tmp_path / "plain.tif", noise(2, 200, 300), nodata=None)
    # The directory of the mask comes behind the blocks of the image.
    whole.write_bytes(whole.read_bytes()[: plain.stat().st_size])
    with pytest.raises(IntegrityError, match="truncated"):
        cut(whole)
    assert not (tmp_path / "part.tif").exists()


def test_files_beside_a_raster_are_not_read(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", noise(1, 200, 300), nodata=None)
    with rasterio.open(whole, "r+") as file, rasterio.Env(GDAL_TIFF_INTERNAL_MASK="NO"):
        file.write_mask(noise(200, 300) % 3 > 0)
    assert (tmp_path / "whole.tif.msk").is_file()
    with rasterio.open(cut(whole)) as part:
        assert (part.read_masks(1) == 255).all()


def test_a_full_disk_is_told(tmp_path: Path, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=300k")
    whole = raster(tmp_path / "whole.tif", noise(1, 1024, 1024))
    with pytest.raises(NoSpaceError, match="no space left"):
        write_window(LocalRangeReader(whole), [grid_at(500, 500, 900)], disk / "part.tif", WHERE)
    assert list(disk.iterdir()) == []


def test_a_header_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eopipe.fetch.range_reader.MAX_PAGES", 2)
    whole = raster(tmp_path / "whole.tif", noise(1, 200, 300))
    with rasterio.open(whole, "r+") as file:
        file.update_tags(note="x" * 200_000)
    with pytest.raises(RefusedError, match="scene S, asset red declares more than"):
        cut(whole)


def broken(file: Path, fraction: float) -> Path:
    """Overwrite some bytes at this part of a file."""
    with file.open("r+b") as content:
        content.seek(int(fraction * file.stat().st_size))
        content.write(b"\xff\x00" * 40)
    return file


@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_a_damaged_block_is_named_and_nothing_is_left(tmp_path: Path, interleave: str) -> None:
    whole = broken(raster(tmp_path / "whole.tif", noise(2, 512, 512), interleave=interleave), 0.5)
    with pytest.raises(IntegrityError, match=r"scene S, asset red is damaged in its block at row \d+, column \d+"):
        cut(whole, grid_at(256, 256, 500))
    assert [path.name for path in tmp_path.iterdir()] == ["whole.tif"]


def test_damage_outside_the_area_does_not_matter(tmp_path: Path) -> None:
    whole = broken(raster(tmp_path / "whole.tif", noise(1, 512, 512)), 0.9)
    same_place(whole, cut(whole, grid_at(60, 60, 50)))


@pytest.mark.parametrize("left", [0.99, 0.5, 0.002, 0.0])
@pytest.mark.parametrize("driver", ["GTiff", "COG"])
def test_a_truncated_file_is_an_error(tmp_path: Path, left: float, driver: str) -> None:
    plain, whole = raster(tmp_path / "plain.tif", noise(1, 512, 512)), tmp_path / "whole.tif"
    options = {"BLOCKSIZE": "64", "OVERVIEWS": "NONE"} if driver == "COG" else {"TILED": "YES"}
    copy(plain, whole, driver=driver, **options)
    whole.write_bytes(whole.read_bytes()[: int(left * whole.stat().st_size)])
    with pytest.raises(IntegrityError, match=WHERE):
        cut(whole, grid_at(256, 256, 600))
    assert not (tmp_path / "part.tif").exists()


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
@settings(max_examples=80)
@given(offset=st.integers(0, 700), value=st.binary(min_size=1, max_size=8))
def test_a_damaged_head_is_an_error_of_ours_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, offset: int, value: bytes
) -> None:
    folder = tmp_path_factory.mktemp("head")
    plain = raster(folder / "plain.tif", noise(1, 200, 200))
    copy(plain, folder / "whole.tif", driver="COG", BLOCKSIZE="128", OVERVIEWS="NONE")
    data = bytearray((folder / "whole.tif").read_bytes())
    data[offset : offset + len(value)] = value
    (folder / "whole.tif").write_bytes(data)
    with suppress(EopipeError):
        assert cut(folder / "whole.tif", grid_at(50, 50, 120)).exists()
    assert {path.name for path in folder.iterdir()} <= {"plain.tif", "whole.tif", "part.tif"}
    shutil.rmtree(folder)


def test_a_grid_elsewhere_is_refused_with_both_places(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", noise(1, 200, 300))
    for grid in (
        grid_at(-5000, 0, 20),
        GeoBox((20, 20), Affine(STEP, 0, LEFT, 0, -STEP, TOP), "EPSG:32634"),
        GeoBox((9, 9), Affine(1, 0, 150, 0, 1, -89), "EPSG:4326"),
    ):
        with pytest.raises(BadInputError, match=r"scene S, asset red is at .* EPSG:32633, outside the grid at .*EPSG"):
            cut(whole, grid)


@pytest.mark.parametrize("missing", [{"crs": None}, {"transform": Affine.identity()}])
@pytest.mark.filterwarnings("ignore:The given matrix is equal to Affine.identity")
def test_a_raster_without_a_place_is_bad_input(tmp_path: Path, missing: dict[str, Any]) -> None:
    whole = raster(tmp_path / "whole.tif", noise(1, 200, 300), **missing)
    with pytest.raises(BadInputError, match=r"no (CRS|geotransform).*, so it cannot be located"):
        cut(whole)


def declared(width: int, height: int, block: int) -> bytes:
    """Build a TIFF of few bytes that says it has this many pixels, all in unwritten blocks."""
    entries = [(256, 4, width), (257, 4, height), (258, 3, 16), (277, 3, 1), (322, 4, block), (323, 4, block)]
    rows = b"".join(
        struct.pack("<HHIHH" if kind == 3 else "<HHII", tag, kind, 1, value, *([0] if kind == 3 else []))
        for tag, kind, value in entries
    )
    count = -(-width // block) * -(-height // block)
    head = 8 + 2 + 8 * 12 + 4
    rows += struct.pack("<HHII", 324, 4, count, head) + struct.pack("<HHII", 325, 4, count, head)
    return b"II*\0" + struct.pack("<IH", 8, 8) + rows + bytes(4) + bytes(4 * count)


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"<VRTDataset rasterXSize='1' rasterYSize='1'/>", RefusedError, "XML"),
        (b"  <html>404</html>", RefusedError, "XML"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", BadInputError, "JPEG 2000"),
        (b"PK\x03\x04 a zip file", BadInputError, "not a GeoTIFF"),
        (declared(400_000, 400_000, 4096), RefusedError, "pixels in blocks of 33554432 bytes"),
        (declared(60_000, 60_000, 60_000), RefusedError, "pixels in blocks of 7200000000 bytes"),
    ],
    ids=["VRT", "HTML", "JPEG 2000", "zip", "many blocks", "a large block"],
)
def test_what_is_no_tiff_or_declares_a_huge_raster_is_refused_before_it_takes_memory(
    tmp_path: Path, content: bytes, kind: type[EopipeError], message: str
) -> None:
    (tmp_path / "whole.tif").write_bytes(content)
    with pytest.raises(kind, match=message):
        cut(tmp_path / "whole.tif")


def test_the_error_of_the_remote_comes_through(tmp_path: Path) -> None:
    class Failing(LocalRangeReader):
        def read(self, start: int, length: int) -> bytes:
            if start:
                raise UpstreamError("host did not deliver")
            return super().read(start, length)

    whole = raster(tmp_path / "whole.tif", noise(1, 512, 512))
    with pytest.raises(UpstreamError, match="host did not deliver"):
        write_window(Failing(whole), [grid_at(400, 400, 100)], tmp_path / "part.tif", WHERE)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.tif"]


def test_windows_come_over_http(tmp_path: Path) -> None:
    whole = raster(tmp_path / "whole.tif", noise(1, 1024, 1024), blockxsize=128, blockysize=128)
    with Loopback(tmp_path) as web:
        remote = open_range_reader(f"{web.url}/whole.tif", WHERE, loopback_session())
        write_window(remote, [grid_at(500, 500, 100)], tmp_path / "part.tif", WHERE)
        assert len(web.requests("/whole.tif")) <= 5
    window_pixels, _ = same_place(whole, tmp_path / "part.tif")
    assert window_pixels.shape[1:] != (1024, 1024)


@pytest.mark.exhaustive
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared Sentinel-2 scenes are not on this machine")
@pytest.mark.parametrize("crs", ["EPSG:32633", "EPSG:3035"])
def test_windows_of_real_scenes(tmp_path: Path, crs: str) -> None:
    for number, file in enumerate(sorted(SHARED.glob("*/B0[48].tif")) + sorted(SHARED.glob("*/SCL.tif"))):
        with rasterio.open(file) as source:
            x, y = source.xy(700, 700)
        centre = (TOP - y) / STEP, (x - LEFT) / STEP
        remote = Counting(file)
        write_window(remote, [grid_at(*centre, 100, crs, 120.0)], tmp_path / f"{number}.tif", WHERE)
        same_place(file, tmp_path / f"{number}.tif")
        assert remote.bytes < 0.45 * remote.size + 32_768
        assert len(remote.received) <= 2
