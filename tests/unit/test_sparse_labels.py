"""Labels of polygons cost what the polygons cover: shards that none reaches are not written, and read as no label."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
import xarray
from builders import grid_of, store_files, write_features
from rasterio.features import rasterize
from shapely import box

from eopipe.arrays import AnyArray
from eopipe.cli import main
from eopipe.errors import IntegrityError
from eopipe.inspection.tiles_command import find_errors
from eopipe.text_files import write_json
from eopipe.tiles.grid import grid_json
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, Tiles

EDGE, SHARD, CHUNK, LEFT, TOP, STEP = 1024, 64, 32, 500e3, 5.1e6, 10.0
GRID = grid_of((EDGE, EDGE), STEP, LEFT, TOP)
# Rows and columns (top, left, bottom, right) of polygons in two corners, their classes and their values.
POLYGONS = [((3, 5, 40, 50), "a", 1.5), ((20, 30, 90, 60), "b", -2.0), ((970, 980, 1010, 1000), "a", 7.0)]
# The shards that they reach, of 16 x 16.
REACHED = [[0, 0], [1, 0], [15, 15]]


def write(path: Path, *, edge: int = EDGE, joined: bool = False) -> Path:
    """The polygons of a file, each as a feature, or as one of several parts; and the grid beside it."""
    shapes = [box(LEFT + STEP * w, TOP - STEP * s, LEFT + STEP * e, TOP - STEP * n) for (n, w, s, e), _, _ in POLYGONS]
    rows = [(shape, name, value) for shape, (_, name, value) in zip(shapes, POLYGONS, strict=True)]
    rows = [(shapely.union_all([shapes[0], shapes[2]]), "a", 1.5)] if joined else rows
    write_features(path, *((shape, {"class": name, "value": value}) for shape, name, value in rows), crs="EPSG:32633")
    write_json(path.with_name("grid.json"), grid_json(GRID[:edge, :edge]))
    return path


def label(source: Path, *options: object, chunk: int = CHUNK, shard: int = SHARD) -> Tiles:
    target = source.with_name(f"{shard}.zarr")
    line = ["label", "--grid", source.with_name("grid.json"), "--labels", target, "--source", source]
    assert main([str(word) for word in [*line, "--chunk", chunk, "--shard", shard, *options]]) == 0
    return Tiles(target)


def shards_of(store: Tiles, name: str) -> list[list[int]]:
    folder = store.path / name / "c"
    files = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    return sorted([int(part) for part in parts] for parts in files)


CLASSES = ("--classes", "a", "b")
KINDS = {
    "classes": (CLASSES, ("label", "valid", "polygon")),
    "values": (("--measure", "height", "--attribute", "value"), ("label", "valid")),
    "change": ((*CLASSES, "--before"), ("label", "valid")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_follow_the_polygons_and_every_pixel_is_as_in_a_store_of_one_shard(kind: str, tmp_path: Path) -> None:
    source, (options, names) = write(tmp_path / "polygons.geojson"), KINDS[kind]
    options = (*options, source) if kind == "change" else options
    sparse, whole = label(source, *options), label(source, *options, shard=EDGE)
    for name in names:
        assert shards_of(sparse, name) == REACHED
        assert shards_of(whole, name) == [[0, 0]]
        pixels = whole.read(name)
        np.testing.assert_array_equal(sparse.read(name), pixels)
        # Other readers of Zarr see the same numbers.
        np.testing.assert_array_equal(np.asarray(sparse.array(name)[:]), pixels)
        np.testing.assert_array_equal(sparse.read(name, slice(50, 700), slice(20, 1000)), pixels[50:700, 20:1000])
    assert 0 < sparse.valid().sum() < 10_000
    assert sparse.attributes["pixels"] == whole.attributes["pixels"]
    assert find_errors(sparse) == find_errors(whole) == []
    with xarray.open_zarr(sparse.path) as opened, xarray.open_zarr(whole.path) as expected:
        xarray.testing.assert_equal(opened.label, expected.label)
    # A plan, which does not know the polygons, counts no fewer files.
    count = sum(path.is_file() for path in sparse.path.rglob("*"))
    assert count < store_files(GRID.shape, Layout(CHUNK, SHARD), len(names), has_image=False)


def test_windows_without_a_polygon_are_not_rasterised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, read = list[int](), rasterize

    def counted(shapes: Any, out_shape: tuple[int, int], **options: Any) -> AnyArray:
        pixels.append(out_shape[0] * out_shape[1])
        return np.asarray(read(shapes, out_shape, **options))

    monkeypatch.setattr("rasterio.features.rasterize", counted)
    label(write(tmp_path / "polygons.geojson"), *CLASSES)
    # Classes together, each class, and numbers of polygons.
    assert sum(pixels) <= 4 * len(REACHED) * SHARD**2


def test_parts_of_one_shape_that_are_far_apart_do_not_reach_what_is_between(tmp_path: Path) -> None:
    store = label(write(tmp_path / "polygons.geojson", joined=True), *CLASSES)
    assert shards_of(store, "label") == [[0, 0], [15, 15]]
    assert store.valid().sum() == store.attributes["pixels"]["a"] == 37 * 45 + 40 * 20
    assert (store.read("label", slice(100, 900)) == NO_LABEL).all()


def test_a_lost_shard_of_such_labels_is_an_error_not_missing_labels(tmp_path: Path) -> None:
    store = label(write(tmp_path / "polygons.geojson"), *CLASSES)
    (store.path / "label/c/1/0").unlink()
    assert any("label has 2 shard files; its layout has 3" in error for error in find_errors(store))
    with pytest.raises(IntegrityError, match="cannot be read"):
        Tiles(store.path).read("label", slice(60, 80), slice(0, 64))


def test_a_store_whose_shards_all_have_labels_is_as_before(tmp_path: Path) -> None:
    store = label(write(tmp_path / "polygons.geojson", edge=128), *CLASSES, shard=128)
    for name in ("label", "valid"):
        document = json.loads((store.path / name / "zarr.json").read_bytes())
        assert document["fill_value"] == 0
        assert "written_shards" not in document["attributes"]
