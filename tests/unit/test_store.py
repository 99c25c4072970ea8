"""A store gives back what was written, has as many files as predicted, and describes itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from builders import write_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.publish import verify
from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles, add_array, new_store


def make_store(path: Path, shape: tuple[int, int], layout: Layout, *, scene: str = "s") -> np.ndarray:
    pixels = np.arange(2 * shape[0] * shape[1], dtype="uint16").reshape(2, *shape)
    options: dict[str, Any] = {"scene": scene, "layout": layout, "scaling": (0.5, -1.0), "datetime": None}
    write_store(path, ("red", "nir"), {"image": pixels}, **options)
    return pixels


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(height=st.integers(1, 90), width=st.integers(1, 90), chunks=st.integers(1, 4))
def test_the_number_of_files_is_predicted(tmp_path: Path, height: int, width: int, chunks: int) -> None:
    layout = Layout(chunk=16, shard=16 * chunks)
    path = tmp_path / f"{height}-{width}-{chunks}.zarr"
    make_store(path, (height, width), layout)
    for name in ("image", "valid"):
        files = [p for p in (path / name / "c").rglob("*") if p.is_file()]
        assert len(files) == layout.files((height, width))
    assert len([p for p in path.rglob("*") if p.is_file()]) == 2 * layout.files((height, width)) + 12


def test_any_window_reads_what_was_written(tmp_path: Path) -> None:
    pixels = make_store(tmp_path / "t.zarr", (70, 50), Layout(chunk=16, shard=32))
    tiles = Tiles(tmp_path / "t.zarr")
    np.testing.assert_array_equal(tiles.read("image", slice(13, 61), slice(7, 50)), pixels[:, 13:61, 7:50])
    assert tiles.shape == (70, 50)


def test_bands_come_by_name_in_physical_units(tmp_path: Path) -> None:
    pixels = make_store(tmp_path / "t.zarr", (20, 30), Layout(chunk=16, shard=32))
    nir = Tiles(tmp_path / "t.zarr").physical(("nir", "red"), slice(3, 9))[0]
    assert nir.dtype == np.float32
    np.testing.assert_allclose(nir, pixels[1, 3:9] * 0.5 - 1.0)
    with pytest.raises(BadInputError, match="no band swir; it has red, nir"):
        Tiles(tmp_path / "t.zarr").physical(("red", "swir"))


def test_a_long_side_still_has_one_file_of_coordinates(tmp_path: Path) -> None:
    grid = make_grid((0.0, 0.0, 300_000.0, 1.0), "EPSG:32633", 1.0, (0, 0))
    with new_store(tmp_path / "t.zarr", grid, ("red",), "s", {}):
        pass
    assert len([p for p in (tmp_path / "t.zarr" / "x" / "c").rglob("*") if p.is_file()]) == 1


def test_a_chunk_with_one_flipped_bit_does_not_read(tmp_path: Path) -> None:
    make_store(tmp_path / "t.zarr", (16, 16), Layout(chunk=16, shard=16))
    shard = tmp_path / "t.zarr" / "image" / "c" / "0" / "0" / "0"
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    with pytest.raises(IntegrityError, match="checksum"):
        Tiles(tmp_path / "t.zarr").read("image")


def test_empty_chunks_are_written_so_that_a_missing_one_is_noticed(tmp_path: Path) -> None:
    grid = make_grid((0.0, 0.0, 320.0, 320.0), "EPSG:32633", 10.0, (0, 0))
    with new_store(tmp_path / "t.zarr", grid, ("red",), "s", {}) as group:
        add_array(group, "valid", (32, 32), "uint8", Layout(chunk=16, shard=16))[:] = 0
    assert len([p for p in (tmp_path / "t.zarr" / "valid" / "c").rglob("*") if p.is_file()]) == 4
    verify(tmp_path / "t.zarr")


def test_a_shard_of_half_chunks_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="the shard edge of 256 pixels is not a multiple of the chunk edge of 96"):
        Layout(chunk=96, shard=256)
    with pytest.raises(UsageError):
        Layout(chunk=256, shard=128)


def test_a_store_that_eopipe_did_not_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    zarr.create_group(tmp_path / "foreign")
    for name in ("folder", "foreign", "nothing"):
        with pytest.raises(BadInputError, match=name):
            Tiles(tmp_path / name)


def test_tiles_in_place_of_labels_are_reported(tmp_path: Path) -> None:
    make_store(tmp_path / "t.zarr", (20, 30), Layout(chunk=16, shard=32))
    with pytest.raises(BadInputError, match="has no array label; it has image, valid"):
        Tiles(tmp_path / "t.zarr").read("label")
