"""A pixel that an alpha band or mask excludes is never data: of any type, beside any bands, for any resampling."""

from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from chip_files import write_chip
from odc.geo.geobox import GeoBox
from rasterio.enums import ColorInterp
from scenery import Catalog, Preprocess, Run, asset_of
from test_label import label

from eopipe.arrays import AnyArray, BoolArray
from eopipe.scenes.item import SceneBand
from eopipe.tiles.store import Tiles
from eopipe.warp.open_raster import SETTINGS
from eopipe.warp.readers import BandOpener
from eopipe.warp.separable import Resampling

KERNELS: tuple[Resampling, ...] = ("nearest", "bilinear", "cubic", "average", "mode")
DTYPES = ("uint8", "int16", "uint16", "float32")
MASKED, NODATA = 99, 7
COLORS = (ColorInterp.red, ColorInterp.green, ColorInterp.blue, ColorInterp.undefined)


def transparent(dtype: str, bands: int) -> tuple[AnyArray, BoolArray]:
    """Bands and their alpha (band, y, x) with `MASKED` where alpha masks, and which pixels it leaves."""
    random = np.random.default_rng(bands)
    visible = np.kron(random.random((32, 24)) > 0.3, np.ones((2, 2))) > 0
    # Some blocks of 2 x 2 pixels are masked in part.
    visible[::4, ::6] = False
    values = np.kron(random.integers(10, 60, (bands, 32, 24)), np.ones((1, 2, 2)))
    # A small alpha is no mask.
    alpha = visible * random.choice([1, 100] if dtype != "float32" else [0.01, 1], visible.shape)
    return np.stack([*np.where(visible, values, MASKED), alpha]).astype(dtype), visible


def write_transparent(path: Path, pixels: AnyArray, **other: Any) -> None:
    """Write bands and their alpha as a GeoTIFF."""
    photometric = {"photometric": "RGB"} if len(pixels) > 3 else {}
    write_chip(path, pixels, left=500000.0, top=5100000.0, alpha="YES", **photometric, **other)
    with rasterio.open(path, "r+") as file:
        file.colorinterp = [*(COLORS[: len(pixels) - 1] if photometric else [ColorInterp.gray]), ColorInterp.alpha]


def read(path: Path, number: int, kernel: Resampling, step: int) -> tuple[AnyArray, BoolArray]:
    """Read a band as preprocess does, on a grid of pixels of `step` metres: pixels (y, x) and their valid mask."""
    grid = GeoBox((640 // step, 480 // step), Affine(step, 0, 500000, 0, -step, 5100000), "EPSG:32633")
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**SETTINGS))
        band = SceneBand("b", path, 1.0, 0.0, None, number=number)
        reader = BandOpener(grid, stack).open(band, kernel, "scene s, asset b")
        image = np.zeros(grid.shape, reader.dtype)
        window = slice(0, grid.shape[0]), slice(0, grid.shape[1])
        reader.plan([window])
        valid = reader.read(window, {}, image)
        return image, np.ones(grid.shape, bool) if valid is None else valid


def average_of_blocks(values: AnyArray, valid: BoolArray) -> tuple[AnyArray, BoolArray]:
    """Means of the valid pixels of 2 x 2, and where there are any."""
    blocks = [array.reshape(32, 2, 24, 2).swapaxes(1, 2).reshape(32, 24, 4) for array in (values, valid)]
    count = blocks[1].sum(-1)
    return np.where(blocks[1], blocks[0], 0).sum(-1) / np.maximum(count, 1), count > 0


@pytest.mark.parametrize(
    ("dtype", "bands", "nodata"), [*product(DTYPES, (1, 3, 4), (None,)), *product(DTYPES, (1,), (NODATA,))]
)
def test_what_alpha_masks_is_not_data_for_any_type_number_of_bands_and_kernel(
    tmp_path: Path, dtype: str, bands: int, nodata: float | None
) -> None:
    pixels, visible = transparent(dtype, bands)
    if nodata is not None:
        pixels[0, :9][visible[:9]] = nodata
        visible[:9] = False
    write_transparent(tmp_path / "b.tif", pixels, nodata=nodata)
    values = pixels[bands - 1].astype(float)
    for kernel, step in product(KERNELS, (10, 20)):
        image, valid = read(tmp_path / "b.tif", bands, kernel, step)
        assert MASKED not in image[valid], (kernel, step)
        if step == 10:
            np.testing.assert_array_equal(valid, visible)
            np.testing.assert_array_equal(image[valid], values[visible])
        elif kernel in ("average", "mode"):
            # Of pixels that are equal in a block, mean and mode are the same.
            mean, has_data = average_of_blocks(values, visible)
            np.testing.assert_array_equal(valid, has_data)
            np.testing.assert_allclose(image[valid], mean[valid], atol=1e-4)
        else:
            assert valid.any()


def test_a_mask_beside_a_nodata_value_masks_too(catalog: Catalog, preprocess: Preprocess) -> None:
    pixels, visible = transparent("uint16", 1)
    item = catalog.add(bands={"b": pixels[0]})
    file = write_chip(catalog.root / "s0/b.tif", pixels[0], left=500000.0, top=5100000.0)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"), rasterio.open(file, "r+") as raster:
        raster.write_mask(visible)
    item["assets"]["b"] = asset_of(file, "b.tif") | {"raster:bands": [{"nodata": NODATA}]}
    for kernel, step in (("nearest", 10.0), ("mode", 20.0)):
        shape = (int(640 / step), int(480 / step))
        image, valid = preprocess.pixels("--mask", "none", "--resampling", kernel, bands=("b",), shape=shape, step=step)
        assert valid.any()
        assert MASKED not in image[0][valid], kernel


@pytest.mark.parametrize(("dtype", "bands"), [*product(DTYPES, (1, 4))])
def test_import_takes_what_alpha_masks_for_no_data(tmp_path: Path, run: Run, dtype: str, bands: int) -> None:
    pixels, visible = transparent(dtype, bands)
    for chip in "ab":
        write_transparent(tmp_path / f"i/{chip}.tif", pixels)
        mask = np.ones((64, 48), np.uint8)
        write_chip(tmp_path / f"m/{chip}.tif", mask, left=500000.0, top=5100000.0)
    images, masks = tmp_path / "i/*.tif", tmp_path / "m/*.tif"
    arguments = ("--images", images, "--masks", masks, "--classes", "a", "b", "--codes", 1, 2)
    assert run("import", tmp_path / "set", *arguments).code == 0
    count = sum(int((Tiles(path).read("valid") > 0).sum()) for path in (tmp_path / "set/tiles").glob("*.zarr"))
    assert count == 2 * visible.sum()


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_what_alpha_masks_of_a_label_raster_is_unlabelled(tmp_path: Path, run: Run, dtype: str) -> None:
    visible = transparent(dtype, 1)[1]
    classes = np.where(visible, np.indices((64, 48))[1] // 24, 1)
    write_transparent(tmp_path / "l.tif", np.stack([classes, visible]).astype(dtype))
    label(run, tmp_path, "--source", tmp_path / "l.tif", "--classes", "a", "b", "--codes", 0, 1).ends(0)
    np.testing.assert_array_equal(Tiles(tmp_path / "labels.zarr").read("valid") > 0, visible)


@pytest.mark.parametrize("asset", ["b", "b#5", "b#9"])
def test_an_asset_of_several_bands_is_refused_with_their_names(
    catalog: Catalog, preprocess: Preprocess, asset: str
) -> None:
    pixels = transparent("uint16", 4)[0]
    item = catalog.add(bands={"b": pixels[0]})
    write_transparent(catalog.root / "s0/b.tif", pixels)
    item["assets"]["b"] = asset_of(catalog.root / "s0/b.tif", "b.tif")
    done = preprocess("--mask", "none", bands=(asset,)).ends(3, "1 red, 2 green, 3 blue, 4 undefined")
    assert ("name it as b#1" if asset == "b" else f"has no band {asset[2:]} of data") in done.stderr


def test_bands_of_one_asset_are_chosen_by_their_numbers(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    pixels = np.stack([np.full((64, 48), value, np.uint16) for value in (3, 5, 8)])
    item = catalog.add(bands={"b": pixels[0]})
    file = write_chip(catalog.root / "s0/b.tif", pixels, left=500000.0, top=5100000.0, names=("red", "green", "blue"))
    item["assets"]["b"] = asset_of(file, "./b.tif") | {"raster:bands": [{"nodata": value} for value in (8, 8, 0)]}
    names, items = ("b#3", "b#1"), tmp_path / "items"
    outputs = ("--items", items, "--grid", tmp_path / "g.json", "--selection", tmp_path / "s.json")
    assert run("search", "--catalog", catalog.write(), *outputs, "--assets", *names).code == 0
    scene = tmp_path / "scene"
    assert run("fetch", "--item", items / "scene.geojson", "--catalog", catalog.root, "--scene", scene).code == 0
    tiles = tmp_path / "t.zarr"
    arguments = ("--scene", scene, "--grid", tmp_path / "g.json", "--tiles", tiles, "--mask", "none", "--bands", *names)
    run("preprocess", *arguments).ends(0)
    store = Tiles(tiles)
    np.testing.assert_array_equal(store.read("image")[:, 0, 0], [8, 3])
    assert store.read("valid").all()


def test_a_label_raster_of_several_bands_is_refused(tmp_path: Path, run: Run) -> None:
    write_chip(tmp_path / "l.tif", np.ones((3, 64, 48), np.uint8), left=500000.0, top=5100000.0)
    done = label(run, tmp_path, "--source", tmp_path / "l.tif", "--classes", "a", "b", "--codes", 0, 1)
    done.ends(3, "l.tif) has 3 bands", "gdal_translate -b 1")


def test_a_chip_mask_of_several_bands_is_refused(tmp_path: Path, run: Run) -> None:
    write_chip(tmp_path / "i/a.tif", np.ones((2, 64, 48), np.uint8))
    write_chip(tmp_path / "m/a.tif", np.ones((2, 64, 48), np.uint8))
    arguments = ("--images", tmp_path / "i/*.tif", "--masks", tmp_path / "m/*.tif", "--classes", "a", "b")
    run("import", tmp_path / "set", *arguments).ends(3, "the mask m/a.tif has 2 bands")
