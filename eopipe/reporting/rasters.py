"""Maps with their surroundings as the images of a page: quicklook, labels, classes, confidence and splits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, UInt8Array
from eopipe.chips.chips import read_truth
from eopipe.chips.map_places import maps_by_image
from eopipe.chips.splits import SPLITS, Split
from eopipe.errors import BadInputError
from eopipe.inference.finished_maps import FrameRaster, open_maps
from eopipe.reporting.decimation import Decimation, decimate, read_centres, read_means, windows_of_stores
from eopipe.reporting.figures import ValueScale
from eopipe.scenes.products import true_colour_bands
from eopipe.tasks import TASKS
from eopipe.tasks.task import without_spread
from eopipe.tiles.cells import Frame
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import NO_LABEL, Tiles

# Tiles and labels of each scene.
Pairs = list[tuple[Tiles, Tiles]]
MAX_MAPS = 6
Shown = TypeVar("Shown")
MAX_QUICKLOOK_SCENES = 5
LONGEST_EDGE, LONGEST_EDGE_OF_MANY = 800, 640


@dataclass(frozen=True)
class MapImage:
    """Stored numbers (band, y, x) of a map at the centres of the pixels of an image, its nodata, scale and tags.

    `spread` (y, x) is among the members of an ensemble, NaN where there is no data; `stored` has the other bands.
    """

    stored: AnyArray
    nodata: float
    scale: float
    tags: dict[str, str]
    spread: FloatArray | None = None

    @classmethod
    def of(cls, source: FrameRaster, stored: AnyArray) -> "MapImage":
        """The image of stored numbers (band, y, x) of all bands of opened maps."""
        first = source.first
        image = cls(stored, first.nodata, first.scales[0], first.tags())
        count = len(without_spread(first.descriptions))
        if count == first.count:
            return image
        spread = np.where(stored[-1] == first.nodata, np.nan, stored[-1] * image.scale).astype(np.float32)
        return replace(image, stored=stored[:count], spread=spread)

    @property
    def classes(self) -> UInt8Array:
        """Class numbers (y, x) of a map of classes, 255 where there is no data."""
        return np.asarray(self.stored[0], np.uint8)

    @property
    def presence(self) -> UInt8Array | None:
        """The labels (class, y, x) of a map of several labels for each chip; None for a map of classes."""
        return self.stored.astype(np.uint8) if TASKS[self.tags.get("task", "segmentation")].has_label_sets else None

    @property
    def most_probable(self) -> UInt8Array:
        """The class (y, x) of the highest of some probabilities, 255 where there is no data."""
        return np.where(self._has_data, self.stored.argmax(0), NO_LABEL).astype(np.uint8)

    @property
    def confidence(self) -> FloatArray:
        """The highest of some probabilities (y, x); NaN where there is no data."""
        return np.where(self._has_data, self.stored.max(0) * self.scale, np.nan).astype(np.float32)

    @property
    def values(self) -> FloatArray:
        """Values (y, x) of the first band, NaN where there is no data."""
        return np.asarray(self.stored[0], np.float32)

    @property
    def _has_data(self) -> BoolArray:
        return np.asarray((self.stored != self.nodata).all(0))


def read_map_image(paths: Iterable[Path], frame: Frame, decimation: Decimation, reached: list[PixelWindow]) -> MapImage:
    """A map at the centres of the pixels of an image, read where scenes reach it."""
    with open_maps(paths, frame) as source:
        return MapImage.of(source, read_centres(source.read, decimation, reached, source.first.nodata))


@dataclass(frozen=True)
class Quicklook:
    """Bands (1 or 3, y, x) and where they have data; in true colour if they are red, green and blue."""

    bands: FloatArray
    has_data: BoolArray
    is_true_colour: bool


@dataclass(frozen=True)
class ValuePixels:
    """Continuous values (y, x) of label and map, NaN where there are none."""

    label: FloatArray
    mapped: FloatArray


@dataclass(frozen=True)
class MapView:
    """One map with its surroundings, all (y, x); `role` is 0 train, 1 val, 2 test, 255 elsewhere.

    For continuous values, `label` and `classes` are the levels of their colours, `confidence` is the standard deviation
    among the scenes, and `values` are the values themselves. For several labels per chip, `classes` is the class with
    the highest probability, and `presence` (class, y, x) is 1 present, 0 absent, 255 no data. `spread` is the spread
    among the members of an ensemble.
    """

    scene: str
    quicklook: Quicklook
    label: UInt8Array
    classes: UInt8Array
    confidence: FloatArray
    role: UInt8Array
    tested: BoolArray
    window: tuple[slice, slice]
    values: ValuePixels | None = None
    presence: UInt8Array | None = None
    spread: FloatArray | None = None

    @property
    def has_labels(self) -> bool:
        """Whether any pixel of the image has a label."""
        return bool((self.label != NO_LABEL).any())


@dataclass(frozen=True)
class MapFile:
    """A map of classes with its probabilities, both by cell; `scene` is empty for a mosaic."""

    scene: str
    classes: dict[str, Path]
    probabilities: dict[str, Path]


def map_files(
    classes: tuple[Path, ...], probabilities: tuple[Path, ...], stores: Sequence[Tiles], names: tuple[str, ...]
) -> list[MapFile]:
    """One mosaic, or the map of each scene in the order of their names; none of a scene without a usable pixel.

    Raises BadInputError for maps that do not belong to the tiles, to each other or to the classes.
    """
    is_paired = len(classes) == len(probabilities)
    both = [maps_by_image(paths, stores) for paths in (classes, probabilities)] if is_paired else []
    if not both or [[*maps] for maps in both[0]] != [[*maps] for maps in both[1]]:
        raise BadInputError(
            f"{len(classes)} maps of classes and {len(probabilities)} of probabilities do not belong together; give "
            "both of the same scenes and cells"
        )
    scenes = [""] if len(both[0]) == 1 else [tiles.scene for tiles in stores]
    files = [MapFile(scene, *maps) for scene, *maps in zip(scenes, *both, strict=True) if maps[0]]
    frame = stores[0].frame
    for file in files:
        with open_maps(file.classes.values(), frame), open_maps(file.probabilities.values(), frame) as opened:
            for source in opened.files.values():
                if without_spread(source.descriptions) != names:
                    listed = ", ".join(str(name) for name in source.descriptions)
                    raise BadInputError(f"{source.name} holds the classes {listed}; the run has {', '.join(names)}")
    return files


def select_maps(files: list[MapFile], split: Split) -> list[MapFile]:
    """At most six maps, spread evenly over those with test areas."""
    with_test = {split.scenes[number] for number in split.samples["test"][:, 0]}
    pool = [file for file in files if not file.scene or file.scene in with_test]
    return files[:MAX_MAPS] if len(files) <= MAX_MAPS or not pool else spread_evenly(pool)


def spread_evenly(maps: Sequence[Shown], most: int = MAX_MAPS) -> list[Shown]:
    """At most six of some maps, or another number."""
    return [maps[n] for n in sorted({round(n) for n in np.linspace(0, len(maps) - 1, min(len(maps), most))})]


def page_decimation(files: list[MapFile], stores: Sequence[Tiles]) -> Decimation:
    """The decimation of every map image of the page."""
    return decimate(stores[0].shape, LONGEST_EDGE_OF_MANY if len(files) > 1 else LONGEST_EDGE)


def read_map(
    file: MapFile,
    stores: Sequence[Tiles],
    labels: Tiles | None,
    role: UInt8Array,
    decimation: Decimation,
    chip: int,
    scale: ValueScale | None = None,
) -> MapView:
    """Read one map of `chip` pixels a chip, its stores and labels; continuous values also as levels of their scale."""
    values, frame = None, stores[0].frame
    # All pixels of a chip that reaches a scene are mapped.
    reached, blank = windows_of_stores(decimation, stores, chip), np.nan if scale else NO_LABEL
    label = np.full(decimation.shape, blank, np.float32 if scale else np.uint8)
    if labels:
        label = read_centres(partial(read_truth, labels), decimation, reached, blank)
    mapped, probabilities = (
        read_map_image(maps.values(), frame, decimation, reached) for maps in (file.classes, file.probabilities)
    )
    presence = None if scale else mapped.presence
    if scale:
        values, confidence = ValuePixels(label, mapped.values), probabilities.values
        label, classes = scale.numbers(label), scale.numbers(values.mapped)
    else:
        classes = mapped.classes if presence is None else probabilities.most_probable
        confidence = probabilities.confidence
    # The pixels that evaluate counts, as far as they are in the image.
    tested = (role == SPLITS.index("test")) & (label != NO_LABEL) & (classes != NO_LABEL)
    quicklook = read_quicklook(stores, decimation)
    window = bounding_window((classes != NO_LABEL) | quicklook.has_data)
    images = quicklook, label, classes, confidence, role, tested
    return MapView(file.scene, *images, window, values, presence, probabilities.spread)


def read_quicklook(stores: Sequence[Tiles], decimation: Decimation) -> Quicklook:
    """The median over the clearest scenes, of valid pixels where there are any."""
    # As measured by preprocess; 0 if it is not recorded.
    valid = {store.scene: float(store.attributes.get("valid_fraction") or 0.0) for store in stores}
    clearest = sorted(stores, key=lambda store: (-valid[store.scene], store.scene))[:MAX_QUICKLOOK_SCENES]
    colours = true_colour_bands(clearest[0].names)
    is_true_colour = bool(colours) and all(set(colours) <= set(store.names) for store in clearest)
    names = colours if is_true_colour else (stores[0].names[0],)
    scenes = [_read_bands(store, names, decimation) for store in clearest]
    valid_bands = np.stack([np.where(is_valid, bands, np.nan) for bands, is_valid in scenes])
    bands = _median(valid_bands, _median(np.stack([bands for bands, _ in scenes]), np.float32(np.nan)))
    return Quicklook(np.nan_to_num(bands), np.asarray(np.isfinite(bands).all(0)), is_true_colour)


def _read_bands(store: Tiles, names: tuple[str, ...], decimation: Decimation) -> tuple[FloatArray, BoolArray]:
    """Stored numbers (band, y, x), NaN where nothing is stored, and where they are valid."""
    order = [store.names.index(name) for name in names]

    def read(y: slice, x: slice) -> FloatArray:
        stored = store.read("image", y, x)
        has_data = store.valid(y, x) | (stored != 0).any(0)
        return np.where(has_data, stored[order].astype(np.float32), np.float32(np.nan))

    reached = windows_of_stores(decimation, [store])
    valid = read_centres(partial(store.read, "valid"), decimation, reached) > 0
    return read_means(read, decimation, reached), valid


def _median(stack: FloatArray, default: Any) -> FloatArray:
    """The median of the finite values over the first axis; `default` where there are none."""
    is_empty = ~np.isfinite(stack).any(0)
    filled = np.where(is_empty, np.float32(0), stack)
    return np.where(is_empty, default, np.nanmedian(filled, axis=0)).astype(np.float32)


def bounding_window(mask: BoolArray) -> tuple[slice, slice]:
    """The smallest window that contains every set pixel; the whole image for an empty mask."""
    rows, cols = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        return slice(0, mask.shape[0]), slice(0, mask.shape[1])
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)
