"""Files of a chip set that exists already: image/mask pairs, a folder of chips for each class, or a list of windows."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.documents import read_document
from eopipe.errors import BadInputError, IntegrityError, RefusedError, UsageError
from eopipe.scenes.item import SceneBand, file_scaling
from eopipe.text_table import shell_word
from eopipe.tiles.geotiff import SETTINGS
from eopipe.tiles.globe import bounds_of, outline_of, to_degrees
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.ground import pixel_metres
from eopipe.warp.open_raster import data_bands, only_band, open_raster, physical, read_window, valid_pixels

# Larger images are scenes of a catalog, not chips.
MAX_EDGE = 4096
SUFFIXES, PICTURES = (".tif", ".tiff"), (".png", ".jpg", ".jpeg")
DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")
# Tags of the acquisition. TIFFTAG_DATETIME is not among them: it is the time at which the file was written.
DATE_TAGS = ("ACQUISITIONDATETIME", "ACQUISITION_DATE", "ACQUISITION_DATETIME", "DATE_ACQUIRED")


@dataclass(frozen=True)
class ChipFile:
    """A chip: its id, the path of its image, and its mask or its class; `window` (rows, columns) is its part of both.

    `source` and `mask_source` are the paths in the index, relative to the folder of the set.
    """

    id: str
    image: Path
    source: str
    mask: Path | None = None
    mask_source: str = ""
    label: str = ""
    window: PixelWindow | None = None

    def part_of(self, source: Any) -> PixelWindow:
        """The rows and columns of an opened file that are the chip's. Raises BadInputError for those outside of it."""
        rows, columns = self.window or (slice(0, source.height), slice(0, source.width))
        if rows.stop > source.height or columns.stop > source.width:
            raise BadInputError(
                f"the window of chip {self.id} ends at row {rows.stop}, column {columns.stop}, but {self.source} has "
                f"{source.height} x {source.width} pixels"
            )
        return rows, columns


@dataclass(frozen=True)
class ChipHeader:
    """What the header of an image says: size, place, bands and how its numbers are stored.

    `bounds` are west, south, east, north in degrees; west > east across 180 degrees. `pixel_m` is the width of a pixel.
    """

    height: int
    width: int
    crs: str
    transform: tuple[float, ...]
    longitude: float
    latitude: float
    bounds: tuple[float, float, float, float]
    pixel_m: float
    date: str | None
    bands: tuple[str, ...]
    dtype: str
    scaling: tuple[float, float]

    @property
    def form(self) -> tuple[int, str, tuple[float, float]]:
        """What all chips of a set share: the number of bands, the data type, scale and offset."""
        return len(self.bands), self.dtype, self.scaling


def refuse_outside(chips: Sequence[ChipFile], folders: Sequence[Path]) -> None:
    """Raise RefusedError for an image or a mask that is in none of these folders, links followed.

    Lists and links come with the chips of other people, and what is read here is packed into what is published.
    """
    roots = [folder.resolve() for folder in folders]
    # With many thousand files, only links are resolved one by one.
    resolved = cache(Path.resolve)
    for chip in chips:
        for kind, path in (("image", chip.image), ("mask", chip.mask)):
            if path is None:
                continue
            # Path.is_symlink raises OSError for a name that is too long.
            is_link = path.name in ("", "..") or os.path.islink(path)  # noqa: PTH114
            actual = path.resolve() if is_link else resolved(path.parent) / path.name
            if any(actual.is_relative_to(root) for root in roots):
                continue
            raise RefusedError(
                f"chip {chip.id} has the {kind} {path}, which is {actual}, outside of {folders[0]}; if files there may "
                f"be read, add --allow-folder {shell_word(actual.parent)}"
            )


def chip_pairs(images: str, masks: str, root: Path | None = None) -> list[ChipFile]:
    """The images and masks of two patterns, matched by what their `*` represents, sorted by it.

    The patterns start from `root`, by default the current folder. Raises UsageError for a pattern without exactly one
    `*`; BadInputError where nothing matches, and for an image without mask or a mask without image.
    """
    names = partial(source_name, images, root=root), partial(source_name, masks, root=root)
    images, masks = (str(root / pattern) if root else pattern for pattern in (images, masks))
    by_id, masks_by_id = matches_of(images), matches_of(masks)
    for pattern, matches in ((images, by_id), (masks, masks_by_id)):
        if not matches:
            raise BadInputError(f"no file matches {pattern}; give a pattern such as 'S2/*_S2.tif'")
    sides = (("images have no mask", by_id, masks_by_id, masks), ("masks have no image", masks_by_id, by_id, images))
    for lack, present, partners, pattern in sides:
        if alone := sorted(present.keys() - partners.keys()):
            missing = pattern.replace("*", alone[0])
            raise BadInputError(f"{len(alone)} {lack}, such as {present[alone[0]]}: no file {missing}")
    return [
        ChipFile(key, by_id[key], names[0](by_id[key]), masks_by_id[key], names[1](masks_by_id[key]))
        for key in sorted(by_id)
    ]


def matches_of(pattern: str) -> dict[str, Path]:
    """The files of a pattern by what its only `*` represents."""
    if pattern.count("*") != 1:
        quoted = "; quote it, so that the shell does not replace it by a file" if Path(pattern).is_file() else ""
        raise UsageError(f"the pattern {pattern!r} needs exactly one *, which is the id of a chip{quoted}")
    before, after = pattern.split("*")
    anchor = folder_of(pattern)
    rest = before[len(str(anchor)) :].lstrip("/") if str(anchor) != "." else before.removeprefix("./")
    expression = re.compile(f"{re.escape(rest)}([^/]+){re.escape(after)}")
    paths = anchor.glob(f"{escape(rest)}*{escape(after)}") if anchor.is_dir() else ()
    by_name = ((expression.fullmatch(path.relative_to(anchor).as_posix()), path) for path in paths)
    return {match[1]: path for match, path in by_name if match and path.is_file()}


def folder_of(pattern: str) -> Path:
    """The folder that a pattern names before its `*`."""
    return Path(pattern.partition("*")[0] + "x").parent


def source_name(pattern: str, path: Path, root: Path | None = None) -> str:
    """The path of a file from the folder before the `*` on, which says nothing of this machine."""
    folder = folder_of(pattern)
    return (Path(folder.name) / path.relative_to((root or Path()) / folder)).as_posix()


def class_folders(root: Path) -> tuple[tuple[str, ...], list[ChipFile]]:
    """The names of the folders in a folder, which are the classes, and the GeoTIFFs in each, sorted.

    Raises BadInputError where there are no two folders with GeoTIFFs, and for a file without the suffix of a GeoTIFF.
    """
    if not root.is_dir():
        raise BadInputError(f"{root} is not a folder; give the folder that has a folder of chips for each class")
    names = tuple(sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")))
    chips = []
    for name in names:
        paths = sorted(p for p in (root / name).iterdir() if p.is_file() and not p.name.startswith("."))
        # GDAL writes statistics beside a file.
        paths = [path for path in paths if not path.name.endswith(".aux.xml")]
        if other := [path for path in paths if path.suffix.lower() not in SUFFIXES]:
            raise BadInputError(_not_geotiff(str(other[0])))
        if not paths:
            raise BadInputError(f"{root / name} has no GeoTIFF, so class {name} has no chip; remove the folder")
        chips += [ChipFile(f"{name}/{path.stem}", path, f"{name}/{path.name}", label=name) for path in paths]
    if len(names) < 2:
        raise BadInputError(
            f"{root} has {len(names)} folders; chips by class need two, each with the name of its class"
        )
    if repeated := [key for key, count in Counter(chip.id for chip in chips).items() if count > 1]:
        raise BadInputError(f"{root} has several files of the chip {repeated[0]}, such as .tif and .tiff")
    return names, chips


def chip_windows(path: Path, folder: Path | None = None) -> list[ChipFile]:
    """The chips of a list in JSON: parts of larger images, as objects with id, image, window, and mask or label.

    A window is [column, row, width, height] in pixels, paths start from `folder`, by default the file's own.
    Raises BadInputError for anything else, ids that are there twice, and a list with masks and labels.
    """
    rows = read_document(path, list[Any], "a list of windows")
    if not rows:
        raise BadInputError(f"{path} is not a list of windows, each with id, image, window, and mask or label")
    chips = [_window_chip(path, folder or path.parent, number, row) for number, row in enumerate(rows)]
    if repeated := [key for key, count in Counter(chip.id for chip in chips).items() if count > 1]:
        raise BadInputError(f"{path} has the id {repeated[0]} twice")
    if len({chip.mask is None for chip in chips}) > 1:
        raise BadInputError(f"{path} has windows with a mask and windows with a label; make two sets")
    return sorted(chips, key=lambda chip: chip.id)


def _window_chip(path: Path, folder: Path, number: int, row: Any) -> ChipFile:
    """The chip of an entry of a list of windows."""
    place = f"{path}, entry {number}"
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) and row[key] for key in ("id", "image")):
        raise BadInputError(f"{place} needs the texts id and image")
    if unknown := sorted(row.keys() - {"id", "image", "window", "mask", "label"}):
        raise BadInputError(f"{place} has {', '.join(unknown)}; an entry has id, image, window, and mask or label")
    texts = [row[key] for key in ("mask", "label") if key in row]
    if len(texts) != 1 or not isinstance(texts[0], str) or not texts[0]:
        raise BadInputError(f"{place} needs a mask (a path) or a label (the name of its class), as text")
    numbers = row["window"] if isinstance(row.get("window"), list) else []
    is_window = len(numbers) == 4 and all(type(value) is int for value in numbers)
    if not is_window or min(numbers[:2]) < 0 or min(numbers[2:]) < 1:
        raise BadInputError(f"{place} needs a window: whole numbers of pixels, [column, row, width, height]")
    column, first, width, height = numbers
    mask = folder / row["mask"] if "mask" in row else None
    return ChipFile(
        *(row["id"], folder / row["image"], _listed_name(row["image"]), mask, _listed_name(row.get("mask", ""))),
        label=row.get("label", ""),
        window=(slice(first, first + height), slice(column, column + width)),
    )


def _listed_name(text: str) -> str:
    """The path of a file in the index: as it is listed, or only its name where that would say where it is here."""
    return Path(text).name if Path(text).is_absolute() else text


@contextmanager
def opened(path: Path, name: str) -> Iterator[Any]:
    """A georeferenced GeoTIFF. Raises BadInputError for another name, and as `open_raster`."""
    import rasterio

    if path.suffix.lower() not in SUFFIXES:
        raise BadInputError(_not_geotiff(name))
    with rasterio.Env(**SETTINGS), open_raster(SceneBand(name, path, 1.0, 0.0, None), f"chip {name}") as source:
        yield source


def _not_geotiff(name: str) -> str:
    """What to do with a file that is not a GeoTIFF by its name; a picture may have its place in a world file."""
    sentence = f"{name} is not a GeoTIFF by its name: chips are files *.tif or *.tiff"
    if Path(name).suffix.lower() not in PICTURES:
        return sentence
    return (
        f"{sentence}, each with a place on the ground; write one of each picture, with a world file (.pgw, .jgw) "
        f"beside it by `gdal_translate -a_srs EPSG:CODE {shell_word(name)} "
        f"{shell_word(Path(name).with_suffix('.tif'))}`, else with its corners too, -a_ullr LEFT TOP RIGHT BOTTOM"
    )


def read_header(chip: ChipFile) -> ChipHeader:
    """The header of a chip's image. Raises BadInputError for no chip, and a mask of another size or place."""
    with opened(chip.image, chip.source) as source:
        height, width = (part.stop - part.start for part in chip.part_of(source))
        if max(height, width) > MAX_EDGE:
            raise BadInputError(f"{chip.source} has {height} x {width} pixels; chips have up to {MAX_EDGE}")
        header = _header(chip, source)
        if chip.mask is not None:
            with opened(chip.mask, chip.mask_source) as mask:
                _check_mask(chip, source, mask)
    return header


def _header(chip: ChipFile, source: Any) -> ChipHeader:
    from affine import Affine
    from odc.geo.geobox import GeoBox

    indexes = data_bands(source)
    dtypes = sorted({source.dtypes[index - 1] for index in indexes})
    scalings = sorted({file_scaling(source, index) for index in indexes})
    if len(dtypes) > 1 or np.dtype(dtypes[0]).kind not in "uif":
        raise BadInputError(
            f"{chip.source} has bands of {' and '.join(dtypes)}; they need a single type of real numbers"
        )
    if len(scalings) > 1:
        raise BadInputError(f"{chip.source} has bands with different scales and offsets: {scalings}")
    code = source.crs.to_epsg()
    crs = f"EPSG:{code}" if code else source.crs.to_wkt()
    rows, columns = chip.part_of(source)
    height, width = rows.stop - rows.start, columns.stop - columns.start
    grid = GeoBox((height, width), source.transform * Affine.translation(columns.start, rows.start), crs)
    x, y = grid.affine * (width / 2, height / 2)
    longitude, latitude = to_degrees(crs).transform(x, y)
    if not (math.isfinite(longitude) and math.isfinite(latitude)):
        raise BadInputError(f"{chip.source} has no place on Earth: its centre is {x:g}, {y:g} in {crs}")
    bands = tuple(source.descriptions[index - 1] or f"band_{index}" for index in indexes)
    return ChipHeader(
        height=height,
        width=width,
        crs=crs,
        transform=tuple(grid.affine)[:6],
        longitude=longitude,
        latitude=latitude,
        bounds=bounds_of(outline_of(grid)),
        pixel_m=pixel_metres(grid)[0],
        date=_date_of(chip, source),
        bands=bands,
        dtype=dtypes[0],
        scaling=scalings[0],
    )


def _date_of(chip: ChipFile, source: Any) -> str | None:
    """The ISO date in the name of the image, else in its tags; TIFFTAG_DATETIME is when the file was written."""
    tags = source.tags() | source.tags(ns="IMAGERY")
    for text in (chip.source, *(str(tags.get(name, "")) for name in DATE_TAGS)):
        for match in DATE.finditer(text):
            try:
                return date(int(match[1]), int(match[3]), int(match[4])).isoformat()
            except ValueError:
                continue
    return None


def _check_mask(chip: ChipFile, source: Any, mask: Any) -> None:
    only_band(mask, f"the mask {chip.mask_source}")
    if mask.shape != source.shape:
        raise BadInputError(
            f"the mask {chip.mask_source} has {mask.height} x {mask.width} pixels, its image {source.height} x "
            f"{source.width}"
        )
    corners = [(0, 0), (source.width, 0), (0, source.height)]
    # In pixels of the image.
    moved = [~source.transform * (mask.transform * corner) for corner in corners]
    shift = max(abs(a - b) for pair in zip(moved, corners, strict=True) for a, b in zip(*pair, strict=True))
    if mask.crs != source.crs or shift > 0.5:
        raise BadInputError(f"the mask {chip.mask_source} and its image {chip.source} are not at one place")


def read_image(chip: ChipFile, nodata: float | None) -> tuple[AnyArray, BoolArray]:
    """The pixels (band, y, x) of a chip, and which (y, x) have data in all bands: 0 where a band has none.

    Raises IntegrityError for a damaged file.
    """
    from rasterio.errors import RasterioIOError
    from rasterio.windows import Window

    with opened(chip.image, chip.source) as source:
        indexes, part = data_bands(source), Window.from_slices(*chip.part_of(source))
        try:
            pixels = source.read(indexes, window=part)
            masks = np.stack([valid_pixels(source, n, part, values) for n, values in zip(indexes, pixels, strict=True)])
        except RasterioIOError as error:
            raise IntegrityError(f"chip {chip.source} is truncated or damaged: {error}") from error
    if nodata is not None:
        masks = masks & (pixels != nodata)
    pixels[~masks] = 0
    return pixels, np.asarray(masks.all(0))


def read_mask(chip: ChipFile) -> tuple[AnyArray, AnyArray, BoolArray]:
    """The stored numbers (y, x) of a chip's mask, their physical values, and where they are data.

    Raises IntegrityError for a damaged file.
    """
    if chip.mask is None:
        raise ValueError(f"{chip.id} has no mask")
    with opened(chip.mask, chip.mask_source) as source:
        stored, valid = read_window(source, chip.part_of(source), f"mask {chip.mask_source}")
        return stored, physical(stored, source), valid
