"""Codecs of Zarr arrays that others wrote, decoded to a limited size: a chunk of few bytes can be any number of them.

Codecs that decode as a stream stop behind the limit; of others the size that their data declare is read before.
"""

import bz2
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numcodecs.abc import Codec as CodecOfZarr2
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.core.array import Array, AsyncArray

from eopipe.errors import RefusedError
from eopipe.fetch.range_reader import MAX_BLOCK

# Bytes that a codec may decode beside twice the chunk: what it adds to small chunks.
SLACK = 1 << 20
# Codecs whose output is about as large as their input or the chunk.
OF_FIXED_SIZE = {
    *("bytes", "endian", "transpose", "delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "shuffle"),
    *("astype", "cast_value", "scale_offset", "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
}
STREAMS = ("gzip", "zlib", "bz2", "lzma")
DECLARED = ("blosc", "zstd", "lz4")
# A frame of zstd (RFC 8878): its first bytes, the first bytes of one without data, and its largest block.
ZSTD_MAGIC, ZSTD_SKIPPED, ZSTD_BLOCK = 0xFD2FB528, 0x184D2A50, 1 << 17


def limit_codecs(array: Array[Any], label: str) -> Array[Any]:
    """The same array, whose codecs decode no chunk to more than about twice its size.

    Raises RefusedError for chunks that are too large, and for codecs whose output cannot be limited; reading raises it
    for a chunk that exceeds the limit.
    """
    metadata, size = array.metadata, int(np.prod(array.chunks)) * array.dtype.itemsize
    if size > MAX_BLOCK:
        raise RefusedError(f"{label} has an array with chunks of {size} bytes, which no scene has")
    if metadata.zarr_format == 2:
        compressor, filters = metadata.compressor, metadata.filters or ()
        changed: Any = replace(
            metadata,
            compressor=compressor and LimitedCodec2(compressor, size, label),
            filters=tuple(LimitedCodec2(codec, size, label) for codec in filters) or None,
        )
    else:
        changed = replace(metadata, codecs=_limited(metadata.codecs, label))
    return Array(AsyncArray(changed, array.store_path))


def _limited(codecs: Any, label: str) -> tuple[Any, ...]:
    return tuple(_limited_codec(codec, label) for codec in codecs)


def _limited_codec(codec: Any, label: str) -> Any:
    if isinstance(codec, ShardingCodec):
        return replace(codec, codecs=_limited(codec.codecs, label))
    _check_known(_name(codec.to_dict()), label)
    is_of_arrays = isinstance(codec, ArrayArrayCodec | ArrayBytesCodec)
    return codec if is_of_arrays else LimitedCodec3(codec, label)


class LimitedCodec2(CodecOfZarr2):  # type: ignore[misc]
    """A codec of Zarr 2 with a limit."""

    codec_id = "limited"

    def __init__(self, codec: CodecOfZarr2, size: int, label: str) -> None:
        self.codec, self.size, self.label = codec, size, label
        _check_known(_name(codec.get_config()), label)

    def encode(self, buf: Any) -> Any:
        return self.codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        data = _decoded(self.codec.get_config(), buf, self.size, self.label)
        return self.codec.decode(buf, out) if data is None else data

    def get_config(self) -> Any:
        return self.codec.get_config()


@dataclass(frozen=True)
class LimitedCodec3(BytesBytesCodec):
    """A codec of Zarr 3 from bytes to bytes with a limit."""

    codec: BytesBytesCodec
    label: str

    @property
    def is_fixed_size(self) -> bool:  # type: ignore[override]
        return self.codec.is_fixed_size

    def to_dict(self) -> Any:
        return self.codec.to_dict()

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        return self.codec.compute_encoded_size(input_byte_length, chunk_spec)

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        # For a codec around a shard it is the shard, which need not fit into memory.
        size = min(int(np.prod(chunk_spec.shape)) * chunk_spec.dtype.to_native_dtype().itemsize, MAX_BLOCK)
        data = _decoded(self.to_dict(), chunk_data.as_numpy_array(), size, self.label)
        if data is None:
            return await self.codec._decode_single(chunk_data, chunk_spec)
        return chunk_spec.prototype.buffer.from_bytes(data)


def _name(config: Mapping[str, Any]) -> str:
    return str(config.get("id") or config.get("name")).removeprefix("numcodecs.").removesuffix("_indexed")


def _check_known(name: str, label: str) -> None:
    if name not in (*OF_FIXED_SIZE, *STREAMS, *DECLARED):
        known = ", ".join((*DECLARED, *STREAMS))
        raise RefusedError(f"{label} is encoded by {name}, whose output cannot be limited; {known} are read")


def _decoded(config: Mapping[str, Any], encoded: Any, size: int, label: str) -> bytes | None:
    """The bytes that a stream decodes to; None for other codecs, which declare no more than the limit."""
    name, limit = _name(config), 2 * size + SLACK
    data = bytes(memoryview(encoded).cast("B")) if name in (*STREAMS, *DECLARED) else b""
    decoded = _read_stream(name, config, data, limit + 1) if name in STREAMS else None
    length = len(decoded) if decoded is not None else _declared(name, data)
    if length > limit:
        raise RefusedError(f"{label} has a chunk that is more than {limit} bytes by {name}, and declares {size}")
    return decoded


def _read_stream(name: str, config: Mapping[str, Any], data: bytes, length: int) -> bytes:
    """At most `length` bytes of compressed data."""
    if name == "zlib":
        return zlib.decompressobj().decompress(data, length)
    file = io.BytesIO(data)
    if name == "gzip":
        return gzip.GzipFile(fileobj=file).read(length)
    if name == "bz2":
        return bz2.BZ2File(file).read(length)
    options = dict(config.get("configuration") or config)
    form, filters = options.get("format", lzma.FORMAT_XZ), options.get("filters")
    # Data in this format declare the memory that they need.
    limit = None if form == lzma.FORMAT_RAW else MAX_BLOCK
    return lzma.LZMADecompressor(form, limit, filters).decompress(data, length)


def _declared(name: str, data: bytes) -> int:
    """The number of decoded bytes that the head of compressed data declares; 0 for other codecs."""
    if name == "zstd":
        return _zstd_size(data)
    at = {"blosc": 4, "lz4": 0}.get(name)
    return 0 if at is None or len(data) < at + 4 else int(struct.unpack_from("<I", data, at)[0])


def _zstd_size(data: bytes) -> int:
    """The largest number of bytes that frames of zstd decode to: as they declare it, else by their blocks."""
    at = total = 0
    while at + 6 <= len(data):
        (magic,) = struct.unpack_from("<I", data, at)
        if magic & 0xFFFFFFF0 == ZSTD_SKIPPED and at + 8 <= len(data):
            at += 8 + struct.unpack_from("<I", data, at + 4)[0]
            continue
        if magic != ZSTD_MAGIC:
            # Not zstd, which the codec itself reports.
            break
        descriptor = data[at + 4]
        is_single = descriptor >> 5 & 1
        at += 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
        width = (is_single, 2, 4, 8)[descriptor >> 6]
        declared = int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)
        at, of_blocks = _zstd_blocks(data, at + width)
        total += declared if width else of_blocks
        at += 4 * (descriptor >> 2 & 1)
    return total


def _zstd_blocks(data: bytes, at: int) -> tuple[int, int]:
    """The end of the blocks of a frame, and the largest number of bytes that they decode to."""
    total = is_last = 0
    while not is_last and at + 3 <= len(data):
        head = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, length = head & 1, head >> 1 & 3, head >> 3
        # Raw, one byte repeated, compressed.
        total += length if kind < 2 else ZSTD_BLOCK
        at += 3 + (1 if kind == 1 else length)
    return at, total
