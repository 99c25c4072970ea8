"""Every fault of a scene in preprocess ends as documented: an exit code and a sentence, never wrong pixels.

The rows of the project's table of faults, and their tests. A test is in this file unless another is named;
`clock` and `revisions` are in tests/workflow.

P01 truncated raster: a_truncated_raster_gives_no_store_and_is_never_left_out,
    a_cut_raster_is_damaged_at_every_door_and_none_takes_it_for_one_without_place (raster_end)
P03 flipped byte of a JPEG 2000 file, P05 of a plain TIFF: a_flipped_bit_that_still_decodes_is_found_by_the_manifest
P04 no data at all: a_scene_without_a_valid_pixel_is_recorded_as_such (preprocess),
    a_sparse_file_is_recorded_as_without_data
P07 virtual dataset: a_virtual_dataset_named_as_a_tiff_is_refused (preprocess),
    no_file_makes_gdal_connect_to_a_server
P08 huge raster in a tiny file: a_raster_that_declares_too_much_is_refused_before_memory_is_allocated
P09 no georeference or a wrong one: a_raster_without_georeference_is_reported (preprocess),
    a_raster_outside_the_grid_is_reported_and_never_all_nodata (preprocess),
    an_item_and_a_file_that_contradict_each_other_are_reported_with_both
P10 unequal bands: coarser_bands_repeat_their_pixels_with_nearest (preprocess),
    bands_half_a_pixel_apart_are_aligned
P12 numbers below the offset: dark_pixels_of_new_baselines_are_negative_and_never_wrap (radiometry)
P13 NaN, infinity, -9999, 65535: float_bands_with_gaps_are_valid_where_they_are_finite (preprocess),
    invalid_pixels_are_counted, every_pixel_is_valid_or_counted_once
P15 two jobs, one store: two_jobs_on_one_store_leave_the_complete_store_of_one,
    concurrent_writers_never_mix
P16 damaged store: a_shard_that_was_deleted_is_found (preprocess), verify_finds_what_was (publish),
    200_injected_damages_are_all_found_each_in_its_place_and_there_is_no_false_alarm (verify)
P17 rightly all nodata: a_scene_without_a_valid_pixel_is_recorded_as_such (preprocess)
P18 disk or quota full: a_disk_that_fills_up_leaves_no_store (publish),
    a_full_disk_keeps_the_old_store
P19 clocks: a_source_from_the_future_is_named_and_left_as_it_is (clock),
    a_run_completes_after_the_clock_was_set_back_between_stages (clock)
P20 hostile store: a_store_that_was_tampered_with_is_not_opened,
    a_store_that_declares_a_billion_pixels_per_side_is_refused, a_member_of_a_store_is_never_outside
P21 changed meaning of numbers: a_change_of_preprocessing_keeps_the_downloads (revisions)
P22 changed eopipe: a_stage_with_a_new_revision_runs_again_with_all_that_follows (revisions),
    another_version_with_the_same_results_reruns_nothing (revisions),
    other_pixels_from_the_same_scene_need_another_revision
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import Loopback
from scenery import CLEAR, CRS, LEFT, SMALL, STEP, TOP, Catalog, Preprocess, numbered, write_raster

from eopipe.arrays import AnyArray
from eopipe.contract import stage
from eopipe.errors import BadInputError, EopipeError, RefusedError
from eopipe.publish import digest, publish, verify, write_manifest
from eopipe.text_files import write_json
from eopipe.tiles.store import Tiles

LOSSLESS = {"QUALITY": 100, "REVERSIBLE": "YES", "BLOCKXSIZE": 128, "BLOCKYSIZE": 128, "compress": None}


NOISY: dict[str, Any] = {"shape": (512, 512), "bands": ("red",)}


def noisy(catalog: Catalog, driver: str, **raster: Any) -> Path:
    """Add a scene of one band of noise, as `NOISY` has it; the band's file."""
    noise = np.random.default_rng(1).integers(1, 9999, (512, 512), np.uint16)
    jpeg = driver == "JP2OpenJPEG"
    item = catalog.add(bands={"red": noise}, driver="GTiff" if jpeg else driver, **({} if jpeg else raster))
    file = catalog.root / "s0/red.tif"
    if not jpeg:
        return file
    file.unlink()
    item["assets"]["red"]["href"] = "red.jp2"
    return write_raster(file.with_suffix(".jp2"), noise, driver=driver, nodata=None, **LOSSLESS)


@pytest.mark.parametrize("on_bad", ["stop", "leave_out"])
@pytest.mark.parametrize("driver", ["COG", "GTiff", "JP2OpenJPEG"])
def test_a_truncated_raster_gives_no_store_and_is_never_left_out(
    catalog: Catalog, preprocess: Preprocess, driver: str, on_bad: str
) -> None:
    file = noisy(catalog, driver)
    data = file.read_bytes()
    # In the first directory, the place and its numbers, between the directories and the blocks, and in the last blocks.
    for length in (0, 3, 8, *range(12, 1100, 64), len(data) // 2, len(data) * 99 // 100, len(data) - 5):
        file.write_bytes(data[:length])
        completed = preprocess("--mask", "none", "--on-bad", on_bad, **NOISY, size=())
        completed.ends(4, f"scene scene, asset red ({file}) is truncated: it has {length} of at least")
        completed.ends(4, f"so a whole copy is needed; remove the folder {preprocess.scene} and fetch the scene again")
        names = {path.name for path in preprocess.folder.iterdir()}
        assert names == {catalog.root.name, "grid.json", "tiles.zarr.run.json"}


@pytest.mark.parametrize("driver", ["GTiff", "JP2OpenJPEG"])
def test_a_flipped_bit_that_still_decodes_is_found_by_the_manifest(
    catalog: Catalog, preprocess: Preprocess, driver: str
) -> None:
    file = noisy(catalog, driver, compress=None)
    (preprocess.scene / "scene.json").write_text(json.dumps(catalog.items[0]))
    write_manifest(preprocess.scene)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    preprocess("--mask", "none", **NOISY, size=()).ends(4, f"{file.name} has other content than the manifest says")


def test_a_sparse_file_is_recorded_as_without_data(catalog: Catalog, preprocess: Preprocess) -> None:
    import rasterio
    from rasterio.transform import from_origin

    catalog.add(bands={"red": numbered((64, 48))})
    size = {"height": 64, "width": 48, "count": 1, "dtype": "uint16", "crs": CRS, "nodata": 0, "sparse_ok": True}
    path, transform = preprocess.scene / "red.tif", from_origin(LEFT, TOP, STEP, STEP)
    with rasterio.open(path, "w", driver="GTiff", transform=transform, **size):
        pass
    attributes = preprocess.tiles("--mask", "none", bands=("red",)).attributes
    assert attributes["valid_fraction"] == 0
    assert attributes["quality"]["nodata"] == 1
    verify(preprocess.store)


WMS = """<GDAL_WMS><Service name="TMS"><ServerUrl>URL/${z}/${x}/${y}.tif</ServerUrl></Service><DataWindow>
<UpperLeftX>-20037508</UpperLeftX><UpperLeftY>20037508</UpperLeftY><LowerRightX>20037508</LowerRightX>
<LowerRightY>-20037508</LowerRightY><TileLevel>3</TileLevel><TileCountX>1</TileCountX><TileCountY>1</TileCountY>
</DataWindow><Projection>EPSG:3857</Projection><BandsCount>1</BandsCount></GDAL_WMS>"""
VRT = """<VRTDataset rasterXSize="48" rasterYSize="64"><SRS>EPSG:32633</SRS>
<GeoTransform>500000,10,0,5100000,0,-10</GeoTransform><VRTRasterBand dataType="UInt16" band="1"><SimpleSource>
<SourceFilename relativeToVRT="0">/vsicurl/URL/other.tif</SourceFilename></SimpleSource></VRTRasterBand></VRTDataset>"""


@pytest.mark.parametrize("text", [VRT, WMS, "\n  " + VRT, "\ufeff" + VRT], ids=["vrt", "wms", "spaces", "mark"])
@pytest.mark.parametrize("asset", ["red", "scl"])
def test_no_file_makes_gdal_connect_to_a_server(
    catalog: Catalog, preprocess: Preprocess, web: Loopback, text: str, asset: str
) -> None:
    catalog.add()
    (preprocess.scene / f"{asset}.tif").write_text(text.replace("URL", web.url))
    completed = preprocess()
    assert completed.code in (4, 8), completed.stderr
    assert f"asset {asset}" in completed.stderr
    assert web.received == []


BOUNDED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30));"
# The program prints its own peak memory (KiB): that of child processes in the system includes their parents.
PEAK = "print(next(row.split()[1] for row in open('/proc/self/status') if row.startswith('VmHWM')))"
STARTED = f"import sys; {BOUNDED} from eopipe.cli import main; code = main(sys.argv[1:]); {PEAK}; sys.exit(code)"


@pytest.mark.parametrize("edge", [400_000, 2_000_000_000])
def test_a_raster_that_declares_too_much_is_refused_before_memory_is_allocated(catalog: Catalog, edge: int) -> None:
    import rasterio
    from rasterio.transform import from_origin

    catalog.add()
    path, folder = catalog.root / "s0/red.tif", catalog.root.parent
    # One block has the full width, so that the directory itself stays small.
    block = {"tiled": True, "blockxsize": 1 << 20, "blockysize": 1 << 20} if edge > 10**6 else {"blockysize": 4000}
    size = {"height": edge if edge < 10**6 else 100_000, "width": edge, "count": 1, "dtype": "uint16"}
    georeference = {"crs": CRS, "transform": from_origin(LEFT, TOP, 10, 10), "BIGTIFF": "YES", "sparse_ok": True}
    with rasterio.open(path, "w", driver="GTiff", **size, **georeference, **block):
        pass
    assert path.stat().st_size < 1 << 20
    (path.parent / "scene.json").write_text(json.dumps(catalog.items[0]))
    write_json(folder / "grid.json", {"crs": CRS, "shape": [64, 48], "transform": [10.0, 0.0, LEFT, 0.0, -10.0, TOP]})
    arguments = ["--scene", path.parent, "--grid", folder / "grid.json", "--tiles", folder / "t.zarr", "--bands", "red"]
    done = subprocess.run(
        [sys.executable, "-c", STARTED, "preprocess", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 8, done.stderr
    assert f"scene scene, asset red (red.tif) declares {edge} x" in done.stderr
    assert int(done.stdout) < 500 * 1024
    assert not (folder / "t.zarr").exists()


@pytest.mark.parametrize("asset", ["red", "scl"])
def test_an_item_and_a_file_that_contradict_each_other_are_reported_with_both(
    catalog: Catalog, preprocess: Preprocess, asset: str
) -> None:
    # Both are on the grid: the zones differ only in the ellipsoid.
    catalog.add()
    pixels = CLEAR if asset == "scl" else numbered((64, 48))
    write_raster(preprocess.scene / f"{asset}.tif", pixels, crs="EPSG:25833")
    preprocess().ends(3, f"asset {asset} is in EPSG:25833 according to its file", "in EPSG:32633 according to its item")
    catalog.items[0]["properties"]["proj:code"] = "EPSG:25833"
    preprocess().ends(3)
    del catalog.items[0]["properties"]["proj:code"]
    preprocess().ends(0)


@pytest.mark.parametrize("shift", [0.5, 0.25, 1 / 3])
def test_bands_half_a_pixel_apart_are_aligned(catalog: Catalog, preprocess: Preprocess, shift: float) -> None:
    # Values of pixels are the positions of their centres on the grid, in pixels, before and after resampling.
    fine = np.tile(np.arange(48, dtype=np.float32) + 0.5, (64, 1))
    coarse = np.tile((np.arange(24, dtype=np.float32) + 0.5) * 2 + shift, (32, 1))
    catalog.add(bands={"blue": fine, "swir": coarse}, steps={"swir": 20.0}, nodata=None, driver="GTiff")
    write_raster(
        catalog.root / "s0" / "swir.tif", coarse, left=LEFT + shift * STEP, step=20.0, nodata=None, driver="GTiff"
    )
    image, valid = preprocess.pixels("--mask", "none", bands=("blue", "swir"))
    inside = np.zeros((64, 48), bool)
    inside[:, 4:44] = True
    assert valid[inside].all()
    # Numbers of 32 bits have a position to a few millionths of a pixel.
    np.testing.assert_allclose(image[1][inside], image[0][inside], atol=2e-5)


def broken_numbers(kind: str) -> tuple[AnyArray, AnyArray, dict[str, Any]]:
    """Pixels of a data type, the mask of invalid ones, and the band of the item."""
    pixels = numbered((64, 48)).astype(kind)
    invalid = np.zeros((64, 48), bool)
    invalid[2, 3:9] = True
    if kind == "float32":
        pixels[invalid] = [np.nan, np.inf, -np.inf, np.nan, -9999, -9999]
    else:
        pixels[invalid] = -9999 if kind == "int16" else 65535
    return pixels, invalid, {"nodata": 65535 if kind == "uint16" else -9999}


@pytest.mark.parametrize("kind", ["float32", "int16", "uint16"])
def test_invalid_pixels_are_counted(catalog: Catalog, preprocess: Preprocess, kind: str) -> None:
    pixels, invalid, raster_band = broken_numbers(kind)
    item = catalog.add(bands={"red": pixels}, nodata=None, driver="GTiff")
    item["assets"]["red"]["raster:bands"] = [raster_band]
    image, valid = preprocess.pixels("--mask", "none", bands=("red",))
    np.testing.assert_array_equal(valid, ~invalid)
    assert np.isfinite(image).all()
    attributes = Tiles(preprocess.store).attributes
    assert attributes["valid_fraction"] == pytest.approx(valid.mean(), abs=1e-6)
    assert attributes["quality"]["nodata"] == pytest.approx(invalid.mean(), abs=1e-6)


def test_every_pixel_is_valid_or_counted_once(catalog: Catalog, preprocess: Preprocess) -> None:
    blue, red = numbered((64, 48)), numbered((64, 48))
    blue[:3], red[2:5] = 0, 0
    scl = CLEAR.copy()
    scl[4:9] = 9
    catalog.add(bands={"blue": blue, "red": red, "scl": scl})
    attributes = preprocess.tiles("--saturated", 3000).attributes
    quality = attributes["quality"]
    assert quality["nodata"] == pytest.approx(5 / 64, abs=1e-6)
    assert quality["masked"] == pytest.approx(4 / 64, abs=1e-6)
    assert quality["saturated"] == pytest.approx((numbered((64, 48)) >= 3000).mean(), abs=1e-6)
    assert sum(quality.values()) + attributes["valid_fraction"] == pytest.approx(1, abs=1e-5)


def test_two_jobs_on_one_store_leave_the_complete_store_of_one(catalog: Catalog, preprocess: Preprocess) -> None:
    digests = set()
    for number in range(2):
        catalog.add(f"scene{number}", {"red": numbered((64, 48), 1 + 4000 * number)})
        preprocess("--mask", "none", bands=("red",), number=number).ends(0)
        digests.add(digest(preprocess.store))
    folder = catalog.root.parent
    arguments = ["--grid", folder / "grid.json", "--tiles", folder / "tiles.zarr"]
    arguments += ["--bands", "red", "--mask", "none", *SMALL]
    command = [sys.executable, "-m", "eopipe", "preprocess", *map(str, arguments), "--scene"]
    jobs = [subprocess.Popen([*command, str(catalog.root / f"s{n}")]) for n in (0, 1)]
    assert [job.wait(100) for job in jobs] == [0, 0]
    verify(folder / "tiles.zarr")
    assert digest(folder / "tiles.zarr") in digests
    assert not [p for p in folder.iterdir() if ".tmp-" in p.name]


WRITERS = """
import sys
from pathlib import Path
from eopipe.publish import publish
for _ in range(40):
    with publish(Path(sys.argv[1]), folder=True) as draft:
        (draft / sys.argv[2]).write_text(sys.argv[2])
"""


def test_concurrent_writers_never_mix(tmp_path: Path) -> None:
    with publish(tmp_path / "out", folder=True) as draft:
        (draft / "first").write_text("first")
    jobs = [subprocess.Popen([sys.executable, "-c", WRITERS, tmp_path / "out", name]) for name in "abc"]
    assert [job.wait(100) for job in jobs] == [0, 0, 0]
    verify(tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_keeps_the_old_store(
    catalog: Catalog, preprocess: Preprocess, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("size=400k")
    noisy(catalog, "GTiff")
    store = disk / "tiles.zarr"

    def make(shape: tuple[int, int]) -> int:
        options = ("--mask", "none", "--tiles", store, "--chunk", 64, "--shard", 64)
        return preprocess(*options, shape=shape, bands=("red",), size=()).code

    assert make((64, 64)) == 0
    before = digest(store)
    assert make((512, 512)) == 6
    verify(store)
    assert digest(store) == before
    assert make((64, 64)) == 0, "after the failure there is as much room as before"


@pytest.fixture
def store(catalog: Catalog, preprocess: Preprocess) -> Path:
    """A complete published store."""
    catalog.add()
    return preprocess.tiles().path


def change(store: Path, edit: Callable[[dict[str, Any]], None], *, listed: bool) -> None:
    """Change the metadata of the image, in the group and in the array's own file."""
    metadata = json.loads((store / "zarr.json").read_text())
    array = json.loads((store / "image" / "zarr.json").read_text())
    edit(array)
    metadata["consolidated_metadata"]["metadata"]["image"] = array
    if not listed:
        del metadata["consolidated_metadata"]
    (store / "zarr.json").write_text(json.dumps(metadata))
    (store / "image" / "zarr.json").write_text(json.dumps(array))


def inner(codec: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Insert a codec of the inner chunks."""
    return lambda array: array["codecs"][0]["configuration"]["codecs"].insert(1, codec)


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "unknown codec": inner({"name": "evil", "configuration": {}}),
    "pickle": inner({"name": "numcodecs.pickle", "configuration": {"protocol": 5}}),
    "huge": lambda array: array.update(shape=[2, 10**9, 10**9]),
    "objects": lambda array: array.update(data_type="object"),
    "not an array": lambda array: array.update(node_type="pirate"),
}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("fault", HOSTILE)
def test_a_store_that_was_tampered_with_is_not_opened(store: Path, fault: str, listed: bool) -> None:
    change(store, HOSTILE[fault], listed=listed)
    with pytest.raises(
        BadInputError, match=r"tiles.zarr(/image)? (is not a readable Zarr (store|array)|cannot|has|has no)"
    ):
        Tiles(store).read("image")


def test_a_store_that_declares_a_billion_pixels_per_side_is_refused(store: Path) -> None:
    metadata = json.loads((store / "zarr.json").read_text())
    metadata["attributes"]["spatial:shape"] = [10**9, 10**9]
    (store / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(RefusedError, match="declares 1000000000 x 1000000000 pixels"):
        Tiles(store)


@pytest.mark.parametrize("name", ["../outside", "/etc", "a/../../outside", "image/../../outside"])
def test_a_member_of_a_store_is_never_outside(store: Path, name: str) -> None:
    shutil.copytree(store / "image", store.parent / "outside")
    metadata = json.loads((store / "zarr.json").read_text())
    listed = metadata["consolidated_metadata"]["metadata"]
    listed[name] = listed["image"]
    (store / "zarr.json").write_text(json.dumps(metadata))
    before = sorted(p for p in store.parent.rglob("*"))
    with pytest.raises(EopipeError):
        Tiles(store).read(name)
    assert sorted(p for p in store.parent.rglob("*")) == before


@pytest.mark.parametrize("listed", [True, False])
def test_a_store_that_was_only_rewritten_reads_well(store: Path, listed: bool) -> None:
    change(store, lambda array: None, listed=listed)
    assert Tiles(store).read("image").shape == (2, 64, 48)


# Digests of image and mask by revision of preprocess: other pixels need a new revision, and a line here.
PIXELS = dict.fromkeys((1, 2, 3, 4, 5, 6), "56bf13b18112d12942f413c49c727debfe4785b42eb141478dca6c144db0afb0")


def test_other_pixels_from_the_same_scene_need_another_revision(catalog: Catalog, preprocess: Preprocess) -> None:
    scl = np.full((32, 24), 4, np.uint8)
    scl[10, 11], scl[20, 3] = 9, 0
    bands = {"blue": numbered((64, 48)), "swir": numbered((32, 24), 500), "scl": scl}
    catalog.add(bands=bands, steps={"swir": 20.0, "scl": 20.0})
    arguments = ("--resampling", "nearest", "--dilate", 2, "--saturated", 3050)
    image, valid = preprocess.pixels(*arguments, bands=("blue", "swir"), left=LEFT - 30)
    pixels = hashlib.sha256(image.astype("<u2").tobytes() + valid.tobytes()).hexdigest()
    assert PIXELS.get(stage("preprocess").revision) == pixels, "raise REVISION of preprocess, see docs/adr/README.md"


def test_the_table_above_names_existing_tests() -> None:
    unit_tests = Path(__file__).parent
    named = re.findall(r"\b(\w+_\w+)(?: \((\w+)\))?", str(__doc__).split("P01", 1)[1])
    for name, module in named:
        folder = unit_tests.parent / "workflow" if module in ("clock", "revisions") else unit_tests
        file = folder / f"test_{module or 'preprocess_faults'}.py"
        assert f"def test_{name}(" in file.read_text(), f"{name} in {file.name}"
    assert len(named) > 20
