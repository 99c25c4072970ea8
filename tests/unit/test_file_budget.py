"""The number of files that a run takes is known before it runs, since clusters count files."""

from pathlib import Path

import numpy as np
import pytest
from builders import grid_of, store_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import Catalog, Preprocess

from eopipe.planning.disk_forecast import store_inodes
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import add_array, new_store

GRANULE = (10980, 10980)


def count(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def count_folders(folder: Path) -> int:
    return 1 + sum(path.is_dir() for path in folder.rglob("*"))


@pytest.mark.exhaustive
@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    chunk=st.sampled_from([16, 32]),
    chunks=st.integers(1, 4),
    arrays=st.integers(1, 3),
    bands=st.integers(1, 3),
    empty=st.booleans(),
)
def test_a_store_takes_as_many_files_as_predicted(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, int],
    chunk: int,
    chunks: int,
    arrays: int,
    bands: int,
    empty: bool,
) -> None:
    store, layout = tmp_path_factory.mktemp("store") / "t.zarr", Layout(chunk, chunk * chunks)
    with new_store(store, grid_of(shape), tuple(f"b{n}" for n in range(bands)), "s", {}) as group:
        for name in ("image", "valid", "count")[:arrays]:
            array_shape = (bands, *shape) if name == "image" else shape
            # Chunks of nothing but the fill value are written too: a missing file would read as fill.
            add_array(group, name, array_shape, "uint16", layout)[:] = np.full(
                array_shape, 0 if empty else 7, np.uint16
            )
    assert count(store) == store_files(shape, layout, arrays)


@pytest.mark.parametrize(("shape", "chunk", "shard"), [
    *((shape, 16, shard) for shape in ((64, 48), (100, 33), (16, 16)) for shard in (16, 32, 64)),
    ((70, 50), 16, 64),
    ((64, 48), 64, 2048),
])  # fmt: skip
def test_preprocess_makes_as_many_files_as_predicted(
    catalog: Catalog, preprocess: Preprocess, shape: tuple[int, int], chunk: int, shard: int
) -> None:
    catalog.add(shape=shape)
    store, layout = preprocess.tiles(shape=shape, size=("--chunk", chunk, "--shard", shard)).path, Layout(chunk, shard)
    assert [count(store / name / "c") for name in ("image", "valid")] == [layout.files(shape)] * 2
    assert count(store) == store_files(shape, layout, 2)
    assert count(store) + count_folders(store) == store_inodes("tiles", [shape], layout)


@pytest.mark.parametrize("chip", [64, 128])
def test_tiles_and_labels_of_ten_thousand_chips_take_few_files(chip: int) -> None:
    """Of chips this large, so many granules are needed; the layout is the default one."""
    granules = -(-10_000 // (GRANULE[0] // chip) ** 2)
    layout = Layout()
    assert chip <= layout.chunk
    tiles, labels = (granules * store_files(GRANULE, layout, 2, has_image=image) for image in (True, False))
    assert tiles + labels <= 400
