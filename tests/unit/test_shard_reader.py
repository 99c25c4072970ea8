"""The reader of shards gives the pixels that zarr-python gives, and reports what is damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from stores import SHAPE, make_scene, number

from eopipe.errors import BadInputError, IntegrityError
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import EMPTY_CHUNK, ShardedArrayReader, ZarrArrayReader, open_array


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scene(tmp_path_factory.mktemp("stores"), "a", ("red", "nir"))[0] / "image"


@pytest.fixture
def damaged_image(tmp_path: Path) -> Path:
    """A store that a test may damage."""
    return make_scene(tmp_path, "a", ("red", "nir"))[0] / "image"


def read(path: Path, y: slice, x: slice, bands: tuple[int, ...] = (0, 1)) -> np.ndarray[Any, Any]:
    array = np.full((len(bands), y.stop - y.start, x.stop - x.start), 7, np.uint16)
    open_array(path).read(array, y.start, x.start, bands)
    return array


def window(edge: int) -> "st.SearchStrategy[slice]":
    ends = st.lists(st.integers(0, edge), min_size=2, max_size=2, unique=True)
    return ends.map(lambda pair: slice(min(pair), max(pair)))


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(window(SHAPE[0]), window(SHAPE[1]), st.sampled_from([(0, 1), (1, 0), (0,), (1,), (1, 1, 0)]))
def test_any_window_of_any_bands_is_what_zarr_reads(image: Path, y: slice, x: slice, bands: tuple[int, ...]) -> None:
    known: Any = zarr.open_array(image, mode="r")
    np.testing.assert_array_equal(read(image, y, x, bands), known[:, y, x][list(bands)])


@pytest.mark.parametrize("layout", [Layout(16, 16), Layout(16, 64), Layout(32, 32, "zstd"), Layout(64, 128)])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
def test_every_layout_and_type_that_eopipe_writes_is_read_without_zarr(
    tmp_path: Path, layout: Layout, dtype: str
) -> None:
    tiles, labels = make_scene(tmp_path, "a", ("red",), layout, dtype)
    image = open_array(tiles / "image")
    assert isinstance(image, ShardedArrayReader)
    assert image.dtype == dtype
    output = np.empty((1, 33, 20), dtype)
    image.read(output, 20, 25, (0,))
    np.testing.assert_array_equal(output[0], number("a", "red").astype(dtype)[20:53, 25:45])
    flat, array = np.empty((40, 40), np.uint8), open_array(labels / "label")
    array.read(flat, 24, 8, ())
    np.testing.assert_array_equal(flat, zarr.open_array(labels / "label", mode="r")[24:64, 8:48])


def test_a_whole_chunk_is_decoded_where_it_belongs(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, output = open_array(image), np.zeros((3, 2, 16, 16), np.uint16)
    array.read(output[0], 0, 0, (0, 1))

    def no_memory(*_: object) -> None:
        raise AssertionError("a copy was made")

    with monkeypatch.context() as poor:
        poor.setattr(np, "empty", no_memory)
        array.read(output[1], 16, 16, (0, 1))
        with pytest.raises(AssertionError, match="a copy was made"):
            array.read(output[2], 16, 16, (1, 0))
    np.testing.assert_array_equal(output[1, 1], number("a", "nir")[16:32, 16:32])


@pytest.mark.parametrize(
    "layout",
    [
        {"chunks": (2, 16, 16)},
        {"chunks": (2, 16, 16), "shards": (2, 32, 32), "compressors": None},
        {"chunks": (1, 16, 16), "shards": (2, 32, 32)},
        {"chunks": (2, 16, 16), "shards": (2, 32, 32)},
    ],
)
def test_an_array_that_eopipe_did_not_write_goes_through_zarr(tmp_path: Path, layout: dict[str, Any]) -> None:
    other_array = zarr.create_array(tmp_path / "other", shape=(2, *SHAPE), dtype="uint16", **layout)
    other_array[:] = np.stack([number("a", "red"), number("a", "nir")])
    array = open_array(tmp_path / "other")
    assert isinstance(array, ZarrArrayReader)
    assert array.dtype == np.uint16
    np.testing.assert_array_equal(
        read(tmp_path / "other", slice(5, 40), slice(3, 48), (1,))[0], number("a", "nir")[5:40, 3:48]
    )


def test_a_window_beyond_the_raster_is_refused(image: Path) -> None:
    with pytest.raises(BadInputError, match="has no window of rows 60 to 76"):
        read(image, slice(60, 76), slice(0, 16))


def test_a_folder_without_an_array_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is not a readable Zarr array"):
        open_array(tmp_path / "nothing")
    (tmp_path / "zarr.json").write_text("{")
    with pytest.raises(BadInputError, match="is not a readable Zarr array"):
        open_array(tmp_path)


def flip(position: int) -> Callable[[bytes], bytes]:
    return lambda data: (
        data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]
        if position >= 0
        else flip(len(data) + position)(data)
    )


def drop_first_chunk(data: bytes) -> bytes:
    """Mark the first chunk as not stored, in an index with a good checksum."""
    from eopipe.tiles.layout import with_crc32c

    index = np.frombuffer(data[-68:-4], "<u8").copy()
    index[:2] = EMPTY_CHUNK
    return data[:-68] + with_crc32c(index.tobytes())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip(40), "chunk 0, 0 of .*a.zarr/image/c/0/0/0 does not match its crc32c checksum"),
        (flip(-2), "index of shard .*a.zarr/image/c/0/0/0 does not match its crc32c checksum"),
        (flip(-30), "index of shard .*a.zarr/image/c/0/0/0 does not match its crc32c checksum"),
        (lambda data: data[:30], "index of shard .*a.zarr/image/c/0/0/0 is truncated"),
        (lambda data: data[200:], "chunk 0, 0 of .* does not match its crc32c checksum"),
        (drop_first_chunk, "chunk 0, 0 of .*a.zarr/image/c/0/0/0 is missing"),
    ],
)
def test_damage_is_reported_with_its_place(damaged_image: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    shard = damaged_image / "c/0/0/0"
    shard.write_bytes(damage(shard.read_bytes()))
    with pytest.raises(IntegrityError, match=message):
        read(damaged_image, slice(0, 64), slice(0, 48))
    assert read(damaged_image, slice(32, 64), slice(0, 48)).any(), "the other shards can be read"


def test_a_missing_shard_is_not_read_as_fill_value(damaged_image: Path) -> None:
    (damaged_image / "c/0/1/0").unlink()
    with pytest.raises(IntegrityError, match=r"shard .*a\.zarr/image/c/0/1/0 cannot be read: No such file"):
        read(damaged_image, slice(40, 41), slice(0, 4))


def test_a_chunk_of_another_size_never_reaches_the_codec(damaged_image: Path) -> None:
    # Blosc would write as much as the header of a chunk says.
    from numcodecs import Blosc

    from eopipe.tiles.layout import with_crc32c

    huge = with_crc32c(Blosc("lz4").encode(np.zeros(10_000, np.uint16)))
    index = np.full(8, EMPTY_CHUNK, np.uint64)
    index[:2] = 0, len(huge)
    (damaged_image / "c/0/0/0").write_bytes(huge + with_crc32c(index.tobytes()))
    with pytest.raises(IntegrityError, match="has a different number of pixels"):
        read(damaged_image, slice(0, 4), slice(0, 4))


@pytest.mark.parametrize("setting", [None, True, False])
def test_a_program_that_reads_a_store_keeps_its_own_threads_of_blosc(
    image: Path, monkeypatch: pytest.MonkeyPatch, setting: bool | None
) -> None:
    from numcodecs import blosc

    monkeypatch.setattr(blosc, "use_threads", setting)
    threads = blosc.get_nthreads()
    read(image, slice(5, 40), slice(3, 48))
    assert (blosc.use_threads, blosc.get_nthreads()) == (setting, threads)


def test_no_more_shards_stay_open_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles, _ = make_scene(tmp_path, "a", ("red",), Layout(16, 16))
    monkeypatch.setattr("eopipe.tiles.shard_reader.MAX_OPEN_SHARDS", 3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    array, output = open_array(tiles / "image"), np.empty((1, *SHAPE), np.uint16)
    for _ in range(2):
        array.read(output, 0, 0, (0,))
        np.testing.assert_array_equal(output[0], number("a", "red"))
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3
