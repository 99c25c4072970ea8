"""What is in a store, as lines of text."""

from pathlib import Path
from typing import Any

from eopipe.publish import files
from eopipe.reporting.wording import format_length, pixel_metres
from eopipe.text_table import format_bytes
from eopipe.tiles.store import IDENTITY, Tiles

# What other lines tell already, or what no person asks for.
TOLD = IDENTITY | {"datetime", "collection", "valid_fraction", "Conventions", "zarr_conventions"}
TOLD |= {"spatial:dimensions", "spatial:bbox"}


def about(store: Tiles) -> list[str]:
    """One store, a line a fact."""
    told = store.attributes
    rows = [("scene", _scene(store)), ("grid", _grid(store)), ("place", _place(store))]
    rows += [(name, _array(store, name)) for name in sorted(store.group.array_keys()) if name not in AXES]
    rows += [("names", " ".join(store.names)), ("cut", _cut(store)), ("usable", _valid(store))]
    rows += [("files", _files(store.path))]
    rows += [(key, _plain(value)) for key, value in sorted(told.items()) if key not in TOLD]
    return [str(store.path), *(f"  {key:<12} {value}" for key, value in rows)]


AXES = {"x", "y", "spatial_ref"}


def table(stores: list[Tiles]) -> list[str]:
    """Many stores, a line each, and what they have together."""
    head = ("store", "date", "pixels", "bands", "valid", "files", "size")
    rows = [head, *(_row(store) for store in stores)]
    many, size = (sum(n) for n in zip(*(_amount(store.path) for store in stores), strict=True))
    rows.append((f"{len(stores)} stores", "", "", "", "", str(many), format_bytes(size)))
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(store: Tiles) -> tuple[str, ...]:
    many, size = _amount(store.path)
    height, width = store.shape
    shown = f"{height} x {width}", str(len(store.names)), _valid(store)
    return store.path.name, _date(store), *shown, str(many), format_bytes(size)


def _amount(path: Path) -> tuple[int, int]:
    """Files of a store, its manifest too, and their bytes."""
    found = [*files(path), *path.glob("manifest.json")]
    return len(found), sum(file.stat().st_size for file in found)


def _date(store: Tiles) -> str:
    told = store.attributes
    return str(told.get("datetime") or told.get("start_datetime") or "")[:10]


def _scene(store: Tiles) -> str:
    collection = store.attributes.get("collection")
    named = (store.scene or "of every scene", _date(store), f"collection {collection}" if collection else "")
    return ", ".join(filter(None, named))


def _grid(store: Tiles) -> str:
    (height, width), (wide, high) = store.shape, pixel_metres(store.grid)
    return (
        f"{height} x {width} pixels (rows x columns) of {format_length(wide)}, {store.grid.crs}, "
        f"{format_length(height * high)} x {format_length(width * wide)}"
    )


def _place(store: Tiles) -> str:
    """The box around the store in degrees."""
    from pyproj import Transformer

    to_degrees = Transformer.from_crs(str(store.grid.crs), "EPSG:4326", always_xy=True)
    west, south, east, north = to_degrees.transform_bounds(*store.grid.boundingbox.bbox)
    return f"{_degrees(west, 'EW')} to {_degrees(east, 'EW')}, {_degrees(south, 'NS')} to {_degrees(north, 'NS')}"


def _degrees(value: float, sides: str) -> str:
    return f"{abs(value):.4f} {sides[value < 0]}"


def _array(store: Tiles, name: str) -> str:
    array = store.array(name)
    scaled = ""
    if "scale_factor" in array.attrs:
        scale, offset = store.scaling
        scaled = f", value = stored x {scale:g} {'-' if offset < 0 else '+'} {abs(offset):g}"
    stored = sum(file.stat().st_size for file in files(store.path / name))
    share = f"{array.nbytes / stored:.1f} times smaller" if stored else "empty"
    shape = " x ".join(map(str, array.shape))
    return f"{shape} {array.dtype}{scaled}; {format_bytes(array.nbytes)} in {format_bytes(stored)}, {share}"


def _cut(store: Tiles) -> str:
    array = store.array("image" if "image" in store.group else "label")
    chunk, shard = array.chunks[-2:], (array.shards or array.chunks)[-2:]
    codecs = (getattr(codec, "cname", None) for codec in array.compressors)
    names = [str(codec.value) for codec in codecs if codec]
    checked = any("Crc32c" in type(codec).__name__ for codec in array.compressors)
    made = (*(f"Blosc {name}" for name in names), *(["crc32c"] * checked))
    return f"chunks of {chunk[0]} x {chunk[1]}, shards of {shard[0]} x {shard[1]}, {', '.join(made) or 'no codec'}"


def _valid(store: Tiles) -> str:
    share = store.attributes.get("valid_fraction")
    return "not told" if share is None else f"{100 * share:.1f} %"


def _files(path: Path) -> str:
    many, size = _amount(path)
    return f"{many} files, {format_bytes(size)}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    return " ".join(map(_plain, value)) if isinstance(value, list) else str(value)
