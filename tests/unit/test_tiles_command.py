"""`eopipe tiles` describes a store and finds its errors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import zarr
from builders import grid_of, write_store

from eopipe.cli import main
from eopipe.publish import write_manifest
from eopipe.reporting.figures import class_colors, rgb
from eopipe.text_table import format_bytes
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

SHAPE = (48, 40)
GRID = grid_of(SHAPE)
NAMES = ("blue", "green", "red", "nir")


def write(path: Path, **changes: Any) -> Path:
    """Write a store of which the upper half is valid; `changes` replace an array."""
    valid = np.zeros(SHAPE, "uint8")
    valid[:24] = 1
    pixels = np.arange(4 * 48 * 40, dtype=changes.pop("dtype", "uint16")).reshape(4, *SHAPE) + 1
    arrays = {"image": pixels, "valid": valid} | changes
    properties: dict[str, Any] = {
        "datetime": "2020-07-04T00:00:00Z",
        "collection": "c",
        "valid_fraction": float(valid.mean()),
    }
    return write_store(path, NAMES, arrays, layout=Layout(16, 32), scaling=(1e-4, -0.1), **properties)


def write_labels(path: Path, **changes: Any) -> Path:
    numbers = np.full(SHAPE, 255, "uint8")
    numbers[:, :20] = 1
    arrays = {"label": numbers, "valid": (numbers != 255).astype("uint8")} | changes
    return write_store(path, ("land", "water"), arrays, layout=Layout(16, 32))


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["tiles", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_info_shows_bounds_bands_scale_chunks_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write(tmp_path / "a.zarr")
    code, printed = command(capsys, "info", store)
    assert code == 0
    files = sum(path.is_file() for path in store.rglob("*"))
    for line in (
        "a, 2020-07-04, collection c",
        "48 x 40 pixels (rows x columns) of 10 m, EPSG:32633, 480 m x 400 m",
        "15.0000 E to 15.0051 E, 45.1",
        "4 x 48 x 40 uint16, value = stored x 0.0001 - 0.1",
        "blue green red nir",
        "16 x 16, in shards of 32 x 32, Blosc lz4, crc32c",
        "50.0 %",
        f"{files} files",
    ):
        assert line in printed, printed


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_export_writes_a_geotiff_with_the_numbers_names_scale_and_mask_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str
) -> None:
    store, target = Tiles(write(tmp_path / "a.zarr", dtype=dtype)), tmp_path / "out.tif"
    assert command(capsys, "export", store.path, target) == (0, f"wrote {target}: blue, green, red, nir\n")
    with rasterio.open(target) as file:
        np.testing.assert_array_equal(file.read(), store.read("image"))
        np.testing.assert_array_equal(file.dataset_mask() > 0, store.read("valid") > 0)
        assert file.descriptions == NAMES
        assert (set(file.scales), set(file.offsets), file.nodata) == ({1e-4}, {-0.1}, None)
        assert (file.crs.to_string(), file.transform) == (str(GRID.crs), GRID.affine)
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.tags()["datetime"] == "2020-07-04T00:00:00Z"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "out.tif"]


def test_export_of_labels_has_their_classes_and_nodata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Tiles(write_labels(tmp_path / "all.zarr"))
    assert command(capsys, "export", store.path)[0] == 0
    with rasterio.open(tmp_path / "all.tif") as file:
        np.testing.assert_array_equal(file.read(1), store.read("label"))
        assert (file.nodata, file.tags()["classes"]) == (255, "0=land, 1=water")
        assert file.colormap(1)[1] == (*rgb(class_colors(store.names, ())[1]), 255)


def test_export_takes_one_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        write(tmp_path / "deep" / f"{name}.zarr")
    code, printed = command(capsys, "export", tmp_path / "deep", tmp_path / "x.tif")
    assert (code, "contains 2 stores; export one at a time" in printed) == (3, True)
    assert command(capsys, "info", tmp_path / "deep", tmp_path / "x.tif")[0] == 2
    assert not (tmp_path / "x.tif").exists()


def test_info_of_a_folder_is_a_line_for_each_store_and_a_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a"):
        write(tmp_path / "deep" / f"{name}.zarr")
    lines = command(capsys, "info", tmp_path)[1].splitlines()
    assert [line.split()[0] for line in lines] == ["store", "a.zarr", "b.zarr", "2"]
    files = sum(path.is_file() for path in (tmp_path / "deep/a.zarr").rglob("*"))
    assert lines[-1].split()[2] == str(2 * files)


def test_a_good_store_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.zarr")
    write_labels(tmp_path / "all.zarr")
    code, printed = command(capsys, "check", tmp_path)
    assert (code, printed.count("is intact")) == (0, 2)


def resealed(store: Path) -> Path:
    """A store whose manifest agrees with its changed files."""
    write_manifest(store)
    return store


def flipped(store: Path) -> Path:
    shard = store / "image/c/0/1/0"
    content = bytearray(shard.read_bytes())
    content[20] ^= 1
    shard.write_bytes(content)
    return store


def shardless(store: Path) -> Path:
    (store / "valid/c/1/1").unlink()
    return store


def mislabelled(store: Path) -> Path:
    zarr.open_group(store).attrs["valid_fraction"] = 0.75
    # Reading takes the metadata of all arrays from the group.
    value = json.loads((store / "zarr.json").read_text())
    value["attributes"]["valid_fraction"] = 0.75
    (store / "zarr.json").write_text(json.dumps(value))
    return store


TWO, ONES = np.full(SHAPE, 2, "uint8"), np.ones(SHAPE, "uint8")
NAN = np.full((4, *SHAPE), np.nan, "float32")
ERRORS: dict[str, Any] = {
    "image/c/0/1/0 has other content": lambda path: flipped(write(path)),
    "rows 32 to 48, columns 0 to 32: does not decode": lambda path: resealed(flipped(write(path))),
    "valid/c/1/1 is missing": lambda path: shardless(write(path)),
    "valid has 3 shard files; its layout has 4": lambda path: resealed(shardless(write(path))),
    "the mask holds 2; only 0 and 1 are allowed": lambda path: write(path, valid=TWO),
    "valid_fraction is 0.75, but the mask's is 0.500000": lambda path: resealed(mislabelled(write(path))),
    "pixels are valid but not finite": lambda path: write(path, image=NAN),
    "1024 pixels have observations but are not valid": lambda path: write(path, count=ONES, valid=0 * ONES),
    "384 pixels have a label but are not valid": lambda path: write_labels(path, valid=ONES),
}


@pytest.mark.parametrize("error", ERRORS)
def test_the_check_finds_that(tmp_path: Path, capsys: pytest.CaptureFixture[str], error: str) -> None:
    ERRORS[error](tmp_path / "a.zarr")
    write(tmp_path / "good.zarr")
    code, printed = command(capsys, "check", tmp_path)
    assert code == 4
    assert error in printed
    assert "good.zarr is intact" in printed


def test_a_folder_without_stores_and_a_foreign_group_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    assert "folder contains no store" in command(capsys, "info", tmp_path / "folder")[1]
    code, printed = command(capsys, "info", tmp_path / "nowhere")
    assert code == 3
    assert "does not exist" in printed
    zarr.create_group(tmp_path / "foreign")
    assert "that eopipe did not write" in command(capsys, "check", tmp_path / "foreign")[1]


def test_bytes_as_people_say_them() -> None:
    assert [format_bytes(size) for size in (0, 999, 12_345, 999_600, 5.5e12)] == [
        "0 B",
        "999 B",
        "12.3 kB",
        "1 MB",
        "5.5 TB",
    ]
