"""The directories of a TIFF file as bytes: read from anywhere, cut to some of its blocks, written again.

Blocks are never decoded here, so what is cut out of a file is what its maker wrote. Both byte orders and BigTIFF.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, IntegrityError, RefusedError

Read = Callable[[int, int], bytes]
# Bytes of one value of each TIFF type, and the numpy kinds of those that eopipe reads as numbers.
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
KINDS = {1: "u1", 3: "u2", 4: "u4", 12: "f8", 16: "u8"}
SUBFILE, WIDTH, HEIGHT, BITS, SAMPLES, PLANAR, ROWS = 254, 256, 257, 258, 277, 284, 278
STRIPS, STRIP_BYTES, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES = 273, 279, 322, 323, 324, 325
PIXEL_SCALE, TIEPOINT, MATRIX = 33550, 33922, 34264
# These point to other places in the file, which are not copied.
POINTERS = {288, 289, 330, 34665, 34853, 40965}
MOST_DIRECTORIES, MOST_ENTRIES, MOST_TAGS, MOST_BYTES = 64, 4096, 1 << 25, 1 << 48
REDUCED, MASK = 1, 4


@dataclass(frozen=True)
class Form:
    """Byte order (`<` or `>`) of a file, and whether it is a BigTIFF."""

    order: str
    big: bool

    def pack(self, code: str, *values: int) -> bytes:
        """Bytes of numbers, as `struct.pack` makes them."""
        return struct.pack(self.order + code, *values)

    def unpack(self, code: str, data: bytes) -> tuple[Any, ...]:
        """Numbers of bytes, as `struct.unpack` reads them."""
        return struct.unpack(self.order + code, data)

    @property
    def word(self) -> str:
        """The struct code of a place in the file."""
        return "Q" if self.big else "I"


@dataclass(frozen=True)
class Tag:
    """A value of a directory, its bytes as they stand in the file."""

    kind: int
    count: int
    data: bytes


@dataclass(frozen=True)
class Directory:
    """One image of a file: its tags by number."""

    form: Form
    tags: dict[int, Tag]

    def numbers(self, tag: int) -> AnyArray:
        """The numbers of a tag; none where the directory has no such tag."""
        found = self.tags.get(tag)
        if found is None or found.kind not in KINDS:
            return np.zeros(0, np.uint64)
        return np.frombuffer(found.data, self.form.order + KINDS[found.kind])

    def number(self, tag: int, default: int = 0) -> int:
        """The first number of a tag, or the default where the directory has no such tag."""
        found = self.numbers(tag)
        return int(found[0]) if found.size else default

    def having(self, tag: int, kind: int, numbers: Any) -> "Directory":
        """Return this directory with other numbers in one tag."""
        values = np.asarray(numbers).astype(self.form.order + KINDS[kind])
        return replace(self, tags=self.tags | {tag: Tag(kind, values.size, values.tobytes())})


@dataclass(frozen=True)
class Blocks:
    """How an image is cut into blocks of (height, width) pixels: so many (planes, down, across)."""

    edge: tuple[int, int]
    shape: tuple[int, int, int]
    offsets: AnyArray
    sizes: AnyArray
    tags: tuple[int, int]


def read_directories(read: Read, where: str) -> list[Directory]:
    """Read the directory of the image, and that of its mask where it has one; overviews are passed over.

    `read(start, length)` gives bytes of the file. Raises BadInputError for what is no TIFF, IntegrityError for a
    broken one, RefusedError for a directory that is larger than any scene needs.
    """
    form = _form(read(0, 8), where)
    (place,) = form.unpack(form.word, read(8, 8) if form.big else read(4, 4))
    found: list[Directory] = []
    seen: set[int] = set()
    while place and len(seen) < MOST_DIRECTORIES:
        if place in seen:
            raise IntegrityError(f"{where} is damaged: its directories go round in a circle")
        seen.add(place)
        entries, place = _entries(form, read, place, where)
        role = Directory(form, {SUBFILE: entries[SUBFILE][0]} if SUBFILE in entries else {}).number(SUBFILE)
        if not found or (role & MASK and not role & REDUCED):
            found.append(Directory(form, _values(form, read, entries, where)))
    if not found:
        raise IntegrityError(f"{where} is damaged: it is a TIFF file without an image")
    return found


def _form(magic: bytes, where: str) -> Form:
    form = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}.get(magic[:4])
    if form:
        return Form(*form)
    if magic.lstrip()[:1] == b"<":
        raise RefusedError(f"{where} is XML, which can read other files; only rasters are opened")
    if magic[:4] in (b"\0\0\0\x0c", b"\xff\x4f\xff\x51"):
        raise BadInputError(f"{where} is JPEG 2000, of which no window can be verified; fetch whole assets instead")
    raise BadInputError(f"{where} is no GeoTIFF: it begins with {magic[:4]!r}; fetch whole assets instead")


def _entries(form: Form, read: Read, place: int, where: str) -> tuple[dict[int, tuple[Tag, bytes]], int]:
    """Tags of one directory with their field of 4 or 8 bytes (the value or its place); place of the next one."""
    head, code, cell = (8, "HHQ", 20) if form.big else (2, "HHI", 12)
    (count,) = form.unpack("Q" if form.big else "H", read(place, head))
    if count > MOST_ENTRIES:
        raise IntegrityError(f"{where} is damaged: a directory says it has {count} entries")
    rows, word = read(place + head, count * cell), cell - struct.calcsize("<" + code)
    entries = {}
    for row in (rows[n : n + cell] for n in range(0, len(rows), cell)):
        tag, kind, number = form.unpack(code, row[:-word])
        if kind in SIZES and tag not in POINTERS:
            entries[tag] = Tag(kind, number, row[-word:][: SIZES[kind] * min(number, word)]), row[-word:]
    (following,) = form.unpack(form.word, read(place + head + count * cell, word))
    return entries, following


def _values(form: Form, read: Read, entries: dict[int, tuple[Tag, bytes]], where: str) -> dict[int, Tag]:
    lengths = {tag: SIZES[found.kind] * found.count for tag, (found, _) in entries.items()}
    if sum(lengths.values()) > MOST_TAGS:
        raise RefusedError(f"{where} declares {sum(lengths.values())} bytes of tags, more than any scene has")
    return {
        tag: replace(found, data=read(form.unpack(form.word, field)[0], lengths[tag]))
        if lengths[tag] > len(field)
        else found
        for tag, (found, field) in entries.items()
    }


def blocks(image: Directory, where: str) -> Blocks:
    """How an image is stored; IntegrityError when its directory contradicts itself."""
    height, width = image.number(HEIGHT), image.number(WIDTH)
    tiled = TILE_WIDTH in image.tags
    edge = (
        (image.number(TILE_HEIGHT), image.number(TILE_WIDTH))
        if tiled
        else (min(image.number(ROWS, height), height), width)
    )
    tags = (TILES, TILE_BYTES) if tiled else (STRIPS, STRIP_BYTES)
    if not all(edge) or not height or not width:
        raise IntegrityError(f"{where} is damaged: it has {height} x {width} pixels in blocks of {edge[0]} x {edge[1]}")
    planes = image.number(SAMPLES, 1) if image.number(PLANAR, 1) == 2 else 1
    shape = (planes, -(-height // edge[0]), -(-width // edge[1]))
    offsets, sizes = image.numbers(tags[0]), image.numbers(tags[1])
    need = shape[0] * shape[1] * shape[2]
    if offsets.size != need or sizes.size != need:
        raise IntegrityError(f"{where} is damaged: it needs {need} blocks, but lists {offsets.size} and {sizes.size}")
    if max(offsets.max(), sizes.max()) > MOST_BYTES:
        raise IntegrityError(f"{where} is damaged: it lists a block at byte {offsets.max()} of {sizes.max()} bytes")
    return Blocks(edge, shape, offsets.astype(np.int64).reshape(shape), sizes.astype(np.int64).reshape(shape), tags)


def cut(image: Directory, stored: Blocks, rows: slice, columns: slice) -> tuple[Directory, AnyArray, AnyArray]:
    """The directory of some whole blocks of an image, and where (int64) and how long these are in its file.

    `rows` and `columns` count blocks. The new directory lists lengths, but no places yet: see `placed`.
    """
    top, left = rows.start * stored.edge[0], columns.start * stored.edge[1]
    height = min(rows.stop * stored.edge[0], image.number(HEIGHT)) - top
    width = min(columns.stop * stored.edge[1], image.number(WIDTH)) - left
    sizes = stored.sizes[:, rows, columns].ravel()
    kind = 16 if image.form.big else 4
    part = image.having(HEIGHT, 4, [height]).having(WIDTH, 4, [width])
    part = part.having(stored.tags[0], kind, np.zeros_like(sizes)).having(stored.tags[1], kind, sizes)
    return _shifted(part, top, left), stored.offsets[:, rows, columns].ravel(), sizes


def has_place(image: Directory) -> bool:
    """Whether the tags tell where the pixels lie; control points do not, they have to be fitted first."""
    scale, tie, matrix = (image.numbers(tag).size for tag in (PIXEL_SCALE, TIEPOINT, MATRIX))
    return matrix == 16 or (tie == 6 and scale >= 2)


def _shifted(image: Directory, top: int, left: int) -> Directory:
    """Move the place of an image so that pixel (top, left) becomes its first."""
    scale, tie, matrix = (image.numbers(tag) for tag in (PIXEL_SCALE, TIEPOINT, MATRIX))
    if matrix.size == 16:
        moved = matrix.astype(np.float64)
        moved[3:12:4] += moved[0:12:4] * left + moved[1:12:4] * top
        return image.having(MATRIX, 12, moved)
    if has_place(image):
        return image.having(TIEPOINT, 12, tie + np.array([0, 0, 0, left * scale[0], -top * scale[1], 0]))
    return image


def encode(images: list[Directory]) -> bytes:
    """The head of a file that holds these images: signature, directories and their values, in this order."""
    form = images[0].form
    out = bytearray((b"II" if form.order == "<" else b"MM") + form.pack("HHH" if form.big else "H", *_magic(form)))
    link = len(out)
    out += form.pack(form.word, 0)
    for image in images:
        out += bytes(-len(out) % 8)
        out[link : link + struct.calcsize(form.word)] = form.pack(form.word, len(out))
        table, values = _table(image, len(out))
        link = len(out) + len(table)
        out += table + form.pack(form.word, 0) + values
    return bytes(out + bytes(-len(out) % 8))


def _magic(form: Form) -> tuple[int, ...]:
    return (43, 8, 0) if form.big else (42,)


def _table(image: Directory, place: int) -> tuple[bytes, bytes]:
    """The entries of a directory that stands at `place`, and the values that follow it."""
    form, word = image.form, 8 if image.form.big else 4
    table = form.pack("Q" if form.big else "H", len(image.tags))
    begin = place + len(table) + len(image.tags) * (12 + 8 * form.big) + word
    values = bytearray(-begin % 8)
    for number, tag in sorted(image.tags.items()):
        table += form.pack("HH" + form.word, number, tag.kind, tag.count)
        if len(tag.data) <= word:
            table += tag.data.ljust(word, b"\0")
        else:
            table += form.pack(form.word, begin + len(values))
            values += tag.data + bytes(-len(tag.data) % 8)
    return table, bytes(values)


def placed(images: list[Directory]) -> tuple[bytes, list[AnyArray]]:
    """The head of a file in which the blocks of these images follow one another; and where each block goes.

    A block of no bytes is none: readers take it as nodata, as they do in the original.
    """
    place, places, done = len(encode(images)), [], []
    for image in images:
        tags = (TILES, TILE_BYTES) if TILES in image.tags else (STRIPS, STRIP_BYTES)
        sizes = image.numbers(tags[1]).astype(np.int64)
        ends = place + np.cumsum(sizes)
        where = np.where(sizes > 0, ends - sizes, 0)
        done.append(image.having(tags[0], image.tags[tags[0]].kind, where))
        places.append(where)
        place = int(ends[-1])
    return encode(done), places
