"""Chip sets: what is at each slot, the index, counts of files, and sentences for bad input."""

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import zarr
from affine import Affine
from builders import store_files
from chip_files import numbered_chip, write_chip, write_pairs
from hypothesis import given
from hypothesis import strategies as st
from scenery import Completed, Run

from eopipe.chips.chip_places import ChipPlaces, read_index
from eopipe.chips.chip_set import SLOT_CRS, SlotGrid
from eopipe.contract import IN_WORKFLOW
from eopipe.errors import BadInputError
from eopipe.inspection.tiles_command import describe_store, find_errors
from eopipe.publish import digest, find_damage
from eopipe.run.job_logs import error_in
from eopipe.text_files import read_json
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import Tiles

SHAPES = [(20, 24), (24, 20), (8, 8), (24, 24), (17, 3)]
CLASSES = ("--classes", "land", "water", "snow")


@pytest.fixture
def store(run: Run, tmp_path: Path) -> Path:
    """The store of the tiles of a set of pairs of these shapes."""
    write_pairs(tmp_path, SHAPES)
    import_pairs(run, tmp_path).ends(0)
    return tmp_path / "set/tiles/chips-0000.zarr"


def import_pairs(run: Run, folder: Path, *options: object, target: str = "set") -> Completed:
    patterns = ("--images", folder / "S2/*_S2.tif", "--masks", folder / "labels/*_label.tif")
    return run("import", folder / target, *patterns, *(options or CLASSES))


@given(count=st.integers(1, 200_000), largest=st.integers(1, 4096))
def test_every_chip_has_a_slot_of_its_own_within_its_store(count: int, largest: int) -> None:
    slots = SlotGrid.for_chips(count, largest)
    assert largest <= slots.edge < largest + 16
    assert slots.edge % 16 == 0
    assert max(slots.shape) <= 8192
    assert sum(len(slots.chips_of(store, count)) for store in range(slots.stores)) == count
    assert all(len(slots.chips_of(store, count)) for store in range(slots.stores))
    for chip in {0, count // 3, count // 2, count - 1}:
        store, row, column = slots.slot(chip)
        first = slots.chips_of(store, count).start
        height, width = slots.shape
        assert row + slots.edge <= height
        assert column + slots.edge <= width
        assert first + row // slots.edge * slots.columns + column // slots.edge == chip


@pytest.mark.parametrize(("count", "most"), [(500, 60), (100_000, 400)])
def test_chips_of_64_pixels_need_few_files(count: int, most: int) -> None:
    slots = SlotGrid.for_chips(count, 64)
    tiles = store_files(slots.shape, slots.layout, 2)
    labels = store_files(slots.shape, slots.layout, 2, has_image=False)
    # The index in each store is an array of two files.
    assert slots.stores * (tiles + labels + 2 * 2) + 2 <= most


def test_every_pixel_of_a_pair_is_at_its_slot_and_the_padding_is_not_valid(store: Path, tmp_path: Path) -> None:
    index = json.loads((tmp_path / "set/chips.json").read_text())
    tiles, labels = Tiles(store), Tiles(tmp_path / "set/labels/chips-0000.zarr")
    assert index["slot"] == 32
    assert tiles.shape == (64, 96)
    assert tiles.names == ("red", "nir")
    assert [row["id"] for row in index["chips"]] == ["00", "01", "02", "03", "04"]
    image, valid, label = np.zeros((2, 64, 96)), np.zeros((64, 96)), np.full((64, 96), 255)
    for chip, (row, (height, width)) in enumerate(zip(index["chips"], SHAPES, strict=True)):
        window = np.s_[row["row"] : row["row"] + height, row["column"] : row["column"] + width]
        image[:, *window], valid[window] = numbered_chip(chip, (height, width)), 1
        label[window] = (np.add.outer(np.arange(height), np.arange(width)) + chip) % 3
        assert (row["height"], row["width"]) == (height, width)
        assert row["valid_pixels"] == row["labelled_pixels"] == height * width
        assert row["crs"] == f"EPSG:{32601 + chip}"
        assert row["transform"] == [10, 0, 5e5 + 1000 * chip, 0, -10, 5e6]
        assert (row["source"], row["mask"]) == (f"S2/{chip:02d}_S2.tif", f"labels/{chip:02d}_label.tif")
        assert row["longitude"] == pytest.approx(-177 + 6 * chip, abs=0.1)
        assert row["latitude"] == pytest.approx(45.15, abs=0.1)
    assert (tiles.read("image") == image).all()
    assert (tiles.read("valid") == valid).all()
    assert (labels.read("label") == label).all()
    assert (labels.read("valid") == valid).all()
    assert find_errors(tiles) == []
    assert find_errors(labels) == []
    assert not [*find_damage(tmp_path / "set", map)]
    assert [json.loads(text) for text in tiles.group["chips"][:]] == index["chips"]
    assert labels.attributes["pixels"] == {name: int((label == n).sum()) for n, name in enumerate(CLASSES[1:])}
    # The forecast: the files of both stores, of the index in each, chips.json and the manifest.
    slots = SlotGrid.for_chips(5, 24)
    files = [store_files(slots.shape, slots.layout, 2, has_image=has_image) for has_image in (True, False)]
    assert sum(path.is_file() for path in (tmp_path / "set").rglob("*")) == sum(files) + 2 * 2 + 2


def test_the_grid_of_a_set_has_no_place_on_earth() -> None:
    from pyproj import Transformer
    from pyproj.exceptions import ProjError
    from rasterio._err import CPLE_BaseError
    from rasterio.warp import transform

    with pytest.raises(ProjError, match="celestial body"):
        Transformer.from_crs(SLOT_CRS, "EPSG:4326")
    with pytest.raises(CPLE_BaseError):
        transform(SLOT_CRS, "EPSG:4326", [0], [0])
    assert str(SlotGrid.for_chips(5, 24).grid(10.0).crs) == SLOT_CRS


def test_the_store_has_the_pixel_size_and_the_bounds_of_its_chips(run: Run, store: Path) -> None:
    described = run("tiles", "info", store).stdout
    assert "of 10 m, slots of a chip set (not a place)" in described
    assert "177.0000 W to 152.94" in described
    assert pixel_metres(Tiles(store).grid) == (10, 10)


def write_windows(folder: Path, *rows: dict[str, object]) -> Path:
    """Two images of 50 x 70 pixels with masks, and a list of windows of them."""
    write_pairs(folder, [(50, 70), (50, 70)])
    path = folder / "windows.json"
    path.write_text(json.dumps(rows))
    return path


def window_entry(key: str, scene: str, window: list[int], **label: str) -> dict[str, object]:
    mask = {"mask": f"labels/{scene}_label.tif"}
    return {"id": key, "image": f"S2/{scene}_S2.tif", "window": window} | (label or mask)


def test_windows_of_larger_images_become_chips_with_their_own_place(run: Run, tmp_path: Path) -> None:
    from pyproj import Transformer

    windows = {"b": ("01", [10, 5, 20, 30]), "a": ("00", [40, 20, 30, 30]), "c": ("00", [0, 0, 16, 16])}
    listed = write_windows(tmp_path, *(window_entry(key, *value) for key, value in windows.items()))
    run("import", tmp_path / "set", "--windows", listed, "--classes", "a", "b", "c").ends(0)
    rows = {row["id"]: row for row in json.loads((tmp_path / "set/chips.json").read_text())["chips"]}
    assert [*rows] == ["a", "b", "c"]
    tiles, labels = (Tiles(tmp_path / f"set/{kind}/chips-0000.zarr") for kind in ("tiles", "labels"))
    for key, (scene, (column, row, width, height)) in windows.items():
        chip = rows[key]
        assert (chip["source"], chip["window"]) == (f"S2/{scene}_S2.tif", [column, row, width, height])
        slot = np.s_[chip["row"] : chip["row"] + height, chip["column"] : chip["column"] + width]
        part = np.s_[row : row + height, column : column + width]
        with (
            rasterio.open(tmp_path / f"S2/{scene}_S2.tif") as image,
            rasterio.open(tmp_path / f"labels/{scene}_label.tif") as mask,
        ):
            assert (tiles.read("image")[:, *slot] == image.read()[:, *part]).all()
            assert (labels.read("label")[slot] == mask.read(1)[part]).all()
            left, top = image.transform * (column, row)
            assert chip["transform"] == [10.0, 0.0, left, 0.0, -10.0, top]
            x, y = image.transform * (column + width / 2, row + height / 2)
            expected = Transformer.from_crs(image.crs, "EPSG:4326", always_xy=True).transform(x, y)
        assert (chip["longitude"], chip["latitude"]) == pytest.approx(expected, abs=1e-8)


def test_windows_with_labels_have_the_classes_of_their_labels(run: Run, tmp_path: Path) -> None:
    rows = [window_entry(key, "00", [0, 0, 16, 16], label=label) for key, label in (("x", "lake"), ("y", "crop"))]
    assert run("import", tmp_path / "set", "--windows", write_windows(tmp_path, *rows)).code == 0
    index = json.loads((tmp_path / "set/chips.json").read_text())
    assert index["classes"] == ["crop", "lake"]
    assert {row["id"]: row["class"] for row in index["chips"]} == {"x": "lake", "y": "crop"}


@pytest.mark.parametrize(("entries", "sentence"), [
    ([], "is not a list of windows"),
    ([{"id": "a"}], "entry 0 needs the texts id and image"),
    ([window_entry("a", "00", [0, 0, 16])], "needs a window: whole numbers of pixels, [column, row, width, heig"),
    ([window_entry("a", "00", [0, 0, 16, 0])], "needs a window: whole numbers of pixels"),
    ([window_entry("a", "00", [60, 0, 16, 16])], "window of chip a ends at row 16, column 76, but"),
    ([window_entry("a", "00", [0, 0, 9, 9])] * 2, "has the id a twice"),
    ([window_entry("a", "00", [0, 0, 9, 9]) | {"label": "lake"}], "needs a mask (a path) or a label"),
    ([window_entry("a", "00", [0, 0, 9, 9]) | {"bbox": [1]}], "entry 0 has bbox; an entry has id, image, window"),
    ([window_entry("a", "00", [0, 0, 9, 9]), window_entry("b", "00", [0, 0, 9, 9], label="x")], "make two sets"),
])  # fmt: skip
def test_a_list_of_windows_that_cannot_be_read_is_one_sentence(
    run: Run, tmp_path: Path, entries: list[dict[str, object]], sentence: str
) -> None:
    listed = write_windows(tmp_path, *entries)
    run("import", tmp_path / "set", "--windows", listed, "--classes", "a", "b", "c").ends(3, sentence)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("way", ["above", "absolute", "link"])
@pytest.mark.parametrize("kind", ["image", "mask"])
def test_a_list_of_windows_reads_no_file_outside_of_its_folder(run: Run, tmp_path: Path, kind: str, way: str) -> None:
    private = write_chip(tmp_path / "private/own.tif", np.ones((50, 70), np.int16), crs="EPSG:32601")
    (tmp_path / "received").mkdir()
    (tmp_path / "received/link.tif").symlink_to(private)
    name = {"above": "../private/own.tif", "absolute": str(private), "link": "link.tif"}[way]
    entries = [window_entry("a", "00", [0, 0, 9, 9]), window_entry("b", "00", [9, 0, 9, 9]) | {kind: name}]
    listed = write_windows(tmp_path / "received", *entries)
    if kind == "image":
        # One band, as that file.
        write_chip(tmp_path / "received/S2/00_S2.tif", np.ones((50, 70), np.int16), crs="EPSG:32601")
    outside, cure = f"which is {private}, outside of {listed.parent}; if", f"--allow-folder {private.parent}\n"
    refused = run("import", tmp_path / "set", "--windows", listed, *CLASSES)
    refused.ends(8, f"chip b has the {kind} ", f"{name}, {outside}", cure)
    assert not (tmp_path / "set").exists()
    allowed = run("import", tmp_path / "set", "--windows", listed, *CLASSES, "--allow-folder", private.parent)
    assert allowed.code == 0, allowed.stderr


def test_links_among_pairs_and_class_folders_lead_out_only_where_that_is_allowed(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path / "received", [(16, 16)] * 2)
    private = (tmp_path / "received/labels/01_label.tif").rename(tmp_path / "own.tif")
    (tmp_path / "received/labels/01_label.tif").symlink_to(private)
    import_pairs(run, tmp_path / "received").ends(8, "chip 01 has the mask")
    assert import_pairs(run, tmp_path / "received", *CLASSES, "--allow-folder", tmp_path).code == 0
    write_chip(tmp_path / "c/crop/a.tif", np.ones((16, 16), np.uint8))
    (tmp_path / "c/lake").symlink_to(tmp_path / "received/S2")
    run("import", tmp_path / "classes", "--folders", tmp_path / "c").ends(8, "chip lake/00_S2 has the image")


@pytest.mark.parametrize("target", ["thesis", "S2"])
def test_a_folder_of_other_files_is_not_replaced_by_a_set(run: Run, tmp_path: Path, target: str) -> None:
    write_pairs(tmp_path, SHAPES)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/only-copy.txt").write_text("years")
    assert import_pairs(run, tmp_path).code == 0
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    import_pairs(run, tmp_path, target=target).ends(2, f"{target} contains")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    assert import_pairs(run, tmp_path).code == 0


@pytest.mark.usefixtures("store")
def test_a_set_that_a_run_reads_is_not_replaced(run: Run, tmp_path: Path) -> None:
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    script = "import sys; from pathlib import Path; from eopipe.chips.import_set import hold_chip_set as hold\n"
    command = [sys.executable, "-c", f"{script}hold(Path(sys.argv[1])); print('held', flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # Several runs may read a set.
    with subprocess.Popen([*command, tmp_path / "set"], **pipes) as first:
        with subprocess.Popen([*command, tmp_path / "set"], **pipes) as second:
            assert [process.stdout.readline() for process in (first, second)] == ["held\n"] * 2
            second.communicate("\n")
        done = import_pairs(run, tmp_path).ends(2, "set is not replaced, for a run reads it; wait until that has")
        assert done.stderr.count("\n") == 1
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
        assert import_pairs(run, tmp_path, target="other").code == 0
        first.communicate("\n")
    assert import_pairs(run, tmp_path).code == 0
    with (tmp_path / "set/chips.json").open("rb+") as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        late = subprocess.run([*command, tmp_path / "set"], capture_output=True, text=True, check=False)
    assert "set is being replaced by `eopipe import`; wait for it" in late.stderr


@pytest.mark.usefixtures("store")
def test_a_chip_is_exported_on_its_own_grid(run: Run, tmp_path: Path) -> None:
    for kind, original in (("tiles", "S2/02_S2.tif"), ("labels", "labels/02_label.tif")):
        target = tmp_path / f"{kind}.tif"
        assert run("tiles", "export", tmp_path / "set" / kind, target, "--chip", "02").code == 0
        with rasterio.open(target) as copied, rasterio.open(tmp_path / original) as chip:
            assert (copied.crs, copied.transform, copied.shape) == (chip.crs, chip.transform, chip.shape)
            assert (copied.read() == chip.read()).all()
    other = ("--chip", "02", "--map", tmp_path / "S2/02_S2.tif")
    for folder, options, code, sentence in (
        ("set/tiles", ("--chip", "99"), 3, "has no chip 99; chips.json of the chip set lists them"),
        ("set", ("--chip", "02"), 3, "give the folder of the tiles, or of the labels"),
        ("set/tiles", other, 3, "is not a map of the store with chip 02, chips-0000"),
    ):
        run("tiles", "export", tmp_path / folder, tmp_path / "x.tif", *options).ends(code, sentence)
    assert not (tmp_path / "x.tif").exists()


def test_bytes_do_not_depend_on_threads(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path, SHAPES)
    for threads in (1, 4):
        assert import_pairs(run, tmp_path, *CLASSES, "--threads", threads, target=f"with{threads}/set").code == 0
    assert digest(tmp_path / "with1/set") == digest(tmp_path / "with4/set")


def test_sets_of_several_stores_continue_in_the_next_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eopipe.chips.chip_set.SHARD", 32)
    write_pairs(tmp_path, [(16, 16)] * 21)
    assert import_pairs(run, tmp_path).code == 0
    index = json.loads((tmp_path / "set/chips.json").read_text())
    assert index["stores"] == ["chips-0000", "chips-0001"]
    for chip, row in enumerate(index["chips"]):
        store = Tiles(tmp_path / "set/tiles" / f"{row['store']}.zarr")
        window = slice(row["row"], row["row"] + 16), slice(row["column"], row["column"] + 16)
        assert (store.read("image", *window) == numbered_chip(chip, (16, 16))).all()


def test_chips_without_label_or_valid_pixel_are_counted_and_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_pairs(tmp_path, [(16, 16)] * 3)
    write_chip(tmp_path / "labels/01_label.tif", np.full((16, 16), -1, np.int16), crs="EPSG:32602", left=5e5 + 1000)
    empty, place = np.zeros((2, 16, 16), np.uint16), {"crs": "EPSG:32603", "left": 5e5 + 2000}
    write_chip(tmp_path / "S2/02_S2.tif", empty, names=("red", "nir"), **place)
    import_pairs(run, tmp_path, *CLASSES, "--ignore", -1, "--nodata", 0).ends(0)
    assert "chips_without_label count=1 chips='01'" in caplog.text
    assert "chips_without_valid_pixel count=1 chips='02'" in caplog.text
    index = json.loads((tmp_path / "set/chips.json").read_text())
    assert (index["without_label"], index["without_valid_pixel"]) == (["01"], ["02"])
    rows = [(row["labelled_pixels"], row["valid_pixels"]) for row in index["chips"]]
    assert rows == [(256, 256), (0, 256), (256, 0)]
    assert index["chips"][1]["class"] is None


def test_every_pixel_of_a_chip_has_the_class_of_its_folder(run: Run, tmp_path: Path) -> None:
    for chip, name in enumerate(("Forest/Forest_2", "Forest/Forest_1", "River/River_1")):
        write_chip(tmp_path / f"EuroSAT/{name}.tif", numbered_chip(chip, (16, 16), 1))
    assert run("import", tmp_path / "set", "--folders", tmp_path / "EuroSAT").code == 0
    index = json.loads((tmp_path / "set/chips.json").read_text())
    classes = [(row["id"], row["class"]) for row in index["chips"]]
    assert classes == [("Forest/Forest_1", "Forest"), ("Forest/Forest_2", "Forest"), ("River/River_1", "River")]
    label = Tiles(tmp_path / "set/labels/chips-0000.zarr").read("label")
    corners = [label[row["row"] : row["row"] + 16, row["column"] : row["column"] + 16] for row in index["chips"]]
    assert [np.unique(corner).tolist() for corner in corners] == [[0], [0], [1]]
    assert (label == 255).sum() == 256


def test_the_date_is_that_of_the_name_else_of_the_tags_never_that_of_writing(run: Run, tmp_path: Path) -> None:
    pixels = numbered_chip(0, (16, 16), 1)
    write_chip(tmp_path / "c/a/x_20230231_2021-07-09_b.tif", pixels)
    write_chip(tmp_path / "c/a/y.tif", pixels, tags={"ACQUISITION_DATE": "2019-02-03T10:00:00Z"})
    write_chip(tmp_path / "c/b/z_120230101.tif", pixels, tags={"TIFFTAG_DATETIME": "2020:01:01 00:00:00"})
    assert run("import", tmp_path / "set", "--folders", tmp_path / "c").code == 0
    index = json.loads((tmp_path / "set/chips.json").read_text())
    assert [row["date"] for row in index["chips"]] == ["2021-07-09", "2019-02-03", None]


def test_scale_and_offset_are_those_of_the_files_or_of_the_options(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path, [(16, 16)])
    import_pairs(run, tmp_path, *CLASSES, "--scale", "1e-4", "--offset", "-0.1")
    assert Tiles(tmp_path / "set/tiles/chips-0000.zarr").scaling == (1e-4, -0.1)


# Faults of the second of two pairs (16, 16).
PLACE: dict[str, Any] = {"crs": "EPSG:32602", "left": 5e5 + 1000}
NAMES = ("red", "nir")
PIXELS, MASK = numbered_chip(1, (16, 16)), np.zeros((16, 16), np.int16)


def damage(path: Path) -> None:
    write_chip(path, PIXELS, names=NAMES, **PLACE, compress="lzw")
    data = path.read_bytes()
    with rasterio.open(path) as source:
        offset = int(source.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1))
    path.write_bytes(data[:offset] + b"\xff" * 64 + data[offset + 64 :])


@pytest.mark.parametrize(("kind", "spoil", "code", "sentence"), [
    ("S2", lambda p: write_chip(p, numbered_chip(1, (16, 16), 3), names=(*NAMES, "swir"), **PLACE), 3,
     "S2/01_S2.tif has 3 bands (red, nir, swir)"),
    ("S2", lambda p: write_chip(p, PIXELS, names=("red", "green"), **PLACE), 3, "01_S2.tif has 2 bands (red, green)"),
    ("S2", lambda p: write_chip(p, PIXELS.astype("int16"), names=NAMES, **PLACE), 3, "of int16"),
    ("S2", lambda p: write_chip(p, PIXELS, names=NAMES, crs=None, left=0), 3, "is not georeferenced"),
    ("S2", lambda p: p.write_text("no raster"), 4, "chip S2/01_S2.tif (01_S2.tif) cannot be read"),
    ("S2", damage, 4, "chip S2/01_S2.tif is truncated or damaged"),
    ("label", lambda p: os.truncate(p, 300), 4, "01_label.tif) is truncated: it has 300 of at least"),
    ("label", lambda p: write_chip(p, MASK[:8], **PLACE), 3, "01_label.tif has 8 x 16 pixels, its image 16 x 16"),
    ("label", lambda p: write_chip(p, MASK, crs="EPSG:32602", left=5e5 + 1010), 3, "are not at one place"),
    ("label", lambda p: write_chip(p, MASK + 7, **PLACE), 3, "values that belong to no class"),
    ("label", lambda p: p.unlink(), 3, "1 images have no mask, such as"),
    ("S2", lambda p: p.unlink(), 3, "1 masks have no image, such as"),
], ids=[
    "bands", "names", "type", "place", "text", "damaged", "cut", "mask size", "mask place", "mask value", "no mask",
    "no image",
])  # fmt: skip
def test_unfit_files_are_refused_and_named(
    run: Run, tmp_path: Path, kind: str, spoil: Callable[[Path], object], code: int, sentence: str
) -> None:
    write_pairs(tmp_path, [(16, 16)] * 2)
    spoil(tmp_path / {"S2": "S2/01_S2.tif", "label": "labels/01_label.tif"}[kind])
    import_pairs(run, tmp_path).ends(code, sentence)
    paths = {path.name: path for path in tmp_path.iterdir()}
    if record := paths.pop("set.run.json", None):
        document = read_json(record)
        assert (document["status"], document["outputs"]) == ("failed", [])
        assert sentence in document["error"]
    assert sorted(paths) == ["S2", "labels"]


@pytest.mark.parametrize(("added", "options", "sentences"), [
    (255, CLASSES, ["mask labels/01_label.tif has values that belong", "mean unlabelled, give --ignore 255; if"]),
    (1, ("--classes", "a", "b"), ["mask labels/00_label.tif, as 1 other, has", "if that is so", "--ignore 2 3;"]),
    (1, ("--classes", "a", "b", "c", "d", "--codes", 1, 2), ["--codes has 2 values for 4 classes"]),
    (0, ("--classes", "a", "b", "--values", "a=0", "b=1", "c=2"), ["--values: there is no class c"]),
])  # fmt: skip
def test_messages_name_the_file_and_the_option(
    run: Run, tmp_path: Path, added: int, options: tuple[object, ...], sentences: list[str]
) -> None:
    write_pairs(tmp_path, [(16, 16)] * 2)
    with rasterio.open(tmp_path / "labels/01_label.tif", "r+") as mask:
        mask.write(mask.read() + (added if added < 255 else 0))
        if added == 255:
            mask.write(np.full((1, 1), 255, np.int16), 1, window=((0, 1), (0, 1)))
    done = import_pairs(run, tmp_path, *options)
    assert done.code in (2, 3)
    assert not [sentence for sentence in sentences if sentence not in done.stderr], done.stderr
    assert not {"label.", "chips-0000"} & {word for word in ("label.", "chips-0000") if f" {word}" in done.stderr}


def test_a_job_of_a_run_names_settings_of_its_config(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path, [(16, 16)] * 2)
    with rasterio.open(tmp_path / "labels/01_label.tif", "r+") as mask:
        mask.write(np.full((1, 1), 255, np.int16), 1, window=((0, 1), (0, 1)))
    monkeypatch.setenv(IN_WORKFLOW, str(tmp_path))
    error = error_in(import_pairs(run, tmp_path).stderr)
    assert error.startswith("mask labels/01_label.tif has values that belong to no class:\n")
    assert error.endswith("set import.ignore: [255]; if not, set import.codes or import.values")


def test_patterns_that_the_shell_replaced_by_files_are_to_be_quoted(run: Run, tmp_path: Path) -> None:
    write_pairs(tmp_path, [(16, 16)] * 3)
    images, masks = (sorted(map(str, (tmp_path / name).iterdir())) for name in ("S2", "labels"))
    for count, named in ((3, ("has 3 words, such as", "; quote the pattern, as in --")), (1, ("quote it, so that",))):
        done = run("import", tmp_path / "set", "--images", *images[:count], "--masks", *masks[:count], *CLASSES)
        assert done.ends(2, *named).stderr.count("\n") == 1


def test_pictures_without_a_place_are_refused_with_the_way_to_give_them_one(run: Run, tmp_path: Path) -> None:
    cure = "`gdal_translate -a_srs EPSG:CODE {0}.png {0}.tif`, else with its corners too, -a_ullr LEFT TOP RIGHT BOTTOM"
    write_pairs(tmp_path, [(16, 16)])
    with rasterio.open(tmp_path / "labels/00_label.tif") as mask:
        profile = {"driver": "PNG", "count": 1, "height": 16, "width": 16, "dtype": "uint8", "crs": mask.crs}
        pixels = mask.read().astype(np.uint8)
    for path in ("labels/00_label.png", "c/crop/a.png", "c/lake/b.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        with rasterio.open(tmp_path / path, "w", **profile, transform=Affine(10, 0, 5e5, 0, -10, 5e6)) as picture:
            picture.write(pixels)
    run(
        *("import", tmp_path / "set", "--images", tmp_path / "S2/*_S2.tif", "--masks", tmp_path / "labels/*_label.png"),
        *CLASSES,
    ).ends(3, cure.format("labels/00_label"))
    run("import", tmp_path / "set", "--folders", tmp_path / "c").ends(3, cure.format(tmp_path / "c/crop/a"))


@pytest.mark.parametrize(("arguments", "sentence"), [
    (("--images", "a.tif", "--masks", "*.tif", *CLASSES), "needs exactly one *"),
    (("--images", "none/*.tif", "--masks", "none/*.tif", *CLASSES), "no file matches none/*.tif"),
    (("--images", "a/*.tif", "--masks", "b/*.tif"), "import needs --images, --masks and --classes, or --folders"),
    (("--folders", "c", "--classes", "a"), "--folders excludes --classes"),
    (("--folders", "none"), "none is not a folder"),
])  # fmt: skip
def test_contradicting_arguments_are_one_sentence(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = run("import", tmp_path / "set", *arguments)
    assert sentence in done.stderr
    assert done.code in (2, 3)
    assert done.stderr.count("error:") == 1


@pytest.mark.parametrize(("change", "text"), [
    ({"row": "0"}, "0.row is '0': write a whole number"),
    ({"row": 7}, "has the chip 00 at a place that is not a slot of the store"),
    ({"column": 4096}, "has the chip 00 at a place that is not a slot of the store"),
    ({"latitude": 1e400}, "0.latitude is inf"),
    ({"transform": [10, 0]}, "0.transform is [10, 0]: write the six or nine numbers of an affine transform"),
    ({"crs": "EPSG:0"}, "has chips with a CRS that does not exist: 'EPSG:0'"),
    ({"group": [1]}, "0.group"),
    ({"id": "x\ud800"}, "0.id is 'x\\ud800': write Unicode text"),
    (None, "0 is None: write an object"),
], ids=str)  # fmt: skip
def test_wrong_rows_of_the_index_in_a_store_are_refused_in_a_sentence(
    change: dict[str, object] | None, text: str, store: Path
) -> None:
    array = zarr.open_array(store / "chips", mode="r+")
    array[0] = json.dumps(change if change is None else json.loads(array[:][0]) | change)
    with pytest.raises(BadInputError, match=re.escape(text)):
        ChipPlaces.of([Tiles(store)])


@pytest.mark.parametrize(("shape", "chunk"), [(2**20, 2**20), (4, 1), (2**40, 1)])
def test_an_index_of_more_rows_or_chunks_than_slots_is_refused_before_it_is_read(
    shape: int, chunk: int, store: Path
) -> None:
    metadata = json.loads((store / "zarr.json").read_text())
    index = metadata["consolidated_metadata"]["metadata"]["chips"]
    index |= {"shape": [shape], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}}}
    (store / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(BadInputError, match=f"it has {shape} rows in {shape // chunk} chunks"):
        ChipPlaces.of([Tiles(store)])


def test_a_chip_without_an_area_is_refused_in_a_sentence(store: Path) -> None:
    array = zarr.open_array(store / "chips", mode="r+")
    array[0] = json.dumps(json.loads(array[:][0]) | {"transform": [1e-12, 0, 5e5, 0, -1e-12, 5e6]})
    places = ChipPlaces.of([Tiles(store)])
    assert places is not None
    with pytest.raises(BadInputError, match="the chip 00 has an outline without one area in degrees"):
        _ = places.outlines


@pytest.mark.parametrize(("attributes", "text"), [
    ({"datetime": 7}, "datetime is 7: write text"),
    ({"datetime": "/"}, "datetime is '/': write a time as in ISO 8601"),
    ({"start_datetime": "0001-01-01T00:00:00+14:00"}, "datetime is '0001-01-01T00:00:00.14:00': write a time"),
    ({"valid_fraction": "x"}, "valid_fraction is 'x': write a number"),
], ids=["number", "no time", "beyond UTC", "share"])  # fmt: skip
def test_times_and_shares_of_a_store_that_are_none_are_refused_when_it_is_opened(
    attributes: dict[str, object], text: str, store: Path
) -> None:
    zarr.open_group(store, mode="r+").attrs.update(attributes)
    with pytest.raises(BadInputError, match=text):
        Tiles(store)


def test_a_store_whose_arrays_or_place_cannot_be_described_is_refused_in_a_sentence(store: Path) -> None:
    path = store
    metadata = json.loads((path / "zarr.json").read_text())
    arrays = metadata["consolidated_metadata"]["metadata"]
    image = arrays["image"]["attributes"]
    for attributes in (7, []):
        arrays["image"]["attributes"] = attributes
        (path / "zarr.json").write_text(json.dumps(metadata))
        with pytest.raises(BadInputError, match=r"image of .* be read: its attributes are not an object"):
            describe_store(Tiles(path))
    arrays["image"]["attributes"] = image
    # Without its slots it has a CRS that is no place on Earth.
    del metadata["attributes"]["chip_set"]
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(BadInputError, match="has no longitudes and latitudes on Earth"):
        describe_store(Tiles(path))


def test_wrong_attributes_and_an_index_of_other_fields_are_refused_in_a_sentence(store: Path, tmp_path: Path) -> None:
    zarr.open_group(store, mode="r+").attrs["chip_set"] = {"slot": -1}
    with pytest.raises(BadInputError, match=r"the metadata of .*chips-0000.zarr .*: chip_set.slot is -1: "):
        Tiles(store)
    (tmp_path / "set/chips.json").write_text('{"slot": [], "bands": "red"}')
    with pytest.raises(BadInputError, match=r"chips.json is not the index of a chip set: slot is \[\]: write a whole"):
        read_index(tmp_path / "set")


@pytest.mark.parametrize(("change", "text"), [
    ({"image": "a" * 300 + ".tif"}, "a.tif cannot be read: File name too long"),
    ({"id": "x\ud800"}, "w.json is not a list of windows: 0.id is 'x\\ud800': it is not Unicode text"),
    ({"label": [[]] * 2 + [float("inf")]}, "0.label.2 is inf, which JSON does not have"),
], ids=["long name", "surrogate", "infinite"])  # fmt: skip
def test_texts_of_windows_that_no_file_has_are_refused_in_a_sentence(
    change: dict[str, object], text: str, run: Run, tmp_path: Path
) -> None:
    write_chip(tmp_path / "a.tif", numbered_chip(0, (16, 16)))
    rows = [{"id": name, "image": "a.tif", "window": [0, 0, 8, 8], "label": name} for name in "ab"]
    (tmp_path / "w.json").write_text(json.dumps([rows[0] | change, rows[1]]))
    run("import", tmp_path / "set", "--windows", tmp_path / "w.json").ends(3, text)
