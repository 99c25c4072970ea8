"""The pictures of a map side by side as PNG or WebP, each with a text for readers who cannot see it."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import BoolArray, FloatArray, UInt8Array
from eopipe.chips.splits import SPLITS
from eopipe.reporting.figures import (
    CONFIDENCE_COLORS,
    RAMP_LEVELS,
    SPLIT_COLORS,
    color_levels,
    color_table,
    mix_colors,
    rgb,
)
from eopipe.reporting.rasters import MapView, Quicklook, ValuePixels
from eopipe.reporting.wording import format_percent, join_words
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from PIL.Image import Image

# Smaller images are stored without loss and enlarged without smoothing, so that their pixels show.
CRISP_EDGE = 400
# Brightness to which the tone curve lifts the median pixel.
MEDIAN_TONE = 0.3
# The share of labelled test pixels below which they do not show as they are: polygons and points in a large area.
SPARSE = 0.02
CORRECT, INCORRECT, UNTESTED = "#a9c7dc", "#d1490c", "#e9e9e6"


@dataclass(frozen=True)
class EncodedImage:
    """An image file in memory, of (width, height) pixels; `kind` is its format, png or webp."""

    data: bytes
    kind: str
    width: int
    height: int

    @property
    def is_crisp(self) -> bool:
        """Whether it is so small that its pixels should show."""
        return max(self.width, self.height) < CRISP_EDGE

    @property
    def uri(self) -> str:
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True)
class ColorRamp:
    """The legend of a continuous image: its colours, and the texts of both ends."""

    low: str
    high: str
    colors: tuple[str, ...]


@dataclass(frozen=True)
class ImagePanel:
    """One image with its title, a description, and the legend of its colours if it has one of its own."""

    title: str
    alt: str
    image: EncodedImage
    ramp: ColorRamp | None = None


@dataclass(frozen=True)
class PanelGroup:
    """The panels of one map; `test_outline` is the SVG path around the test area, in pixels of width x height."""

    heading: str
    panels: list[ImagePanel]
    test_outline: str
    width: int
    height: int


def map_panels(
    view: MapView, heading: str, classes: tuple[str, ...], colors: tuple[str, ...], unit: str = ""
) -> PanelGroup:
    """Quicklook, label, map, confidence, spread of members and errors of one map, cropped to where it has data."""
    panels = [_quicklook_panel(view)]
    if view.presence is not None:
        panels += _label_panels(view, view.presence, classes, colors)
    elif view.values is not None:
        panels += _value_panels(view, view.values, colors, unit)
    else:
        panels += _class_panels(view, classes, colors)
    test = view.role[view.window] == SPLITS.index("test")
    return PanelGroup(heading, panels, outline(test), test.shape[1], test.shape[0])


def _class_panels(view: MapView, classes: tuple[str, ...], colors: tuple[str, ...]) -> list[ImagePanel]:
    crop = view.window
    label, mapped, confidence = view.label[crop], view.classes[crop], view.confidence[crop]
    tested = view.tested[crop]
    texts = f"Labels: {_class_shares(label, classes)}", f"Predicted classes: {_class_shares(mapped, classes)}"
    panels = _label_and_map(view, "Predicted classes", texts, colors)
    chance = 1 / max(len(classes), 2)
    text = f"Highest probability: {_value_text(confidence, '', '.2f')}."
    panels.append(ImagePanel("Confidence", text, encode_ramp(confidence, chance)))
    panels += _spread_panels(view)
    if tested.any():
        share = format_percent(float((label != mapped)[tested].mean()))
        alt = f"Test pixels where map and label differ: {share} of the pixels in this image."
        title = "Errors in the test area" + ", its pixels enlarged" * bool(tested.mean() < SPARSE)
        panels.append(ImagePanel(title, alt, _error_image(view, label != mapped)))
    return panels


def _label_and_map(view: MapView, title: str, texts: tuple[str, str], colors: tuple[str, ...]) -> list[ImagePanel]:
    """The label, where there is one, and the map with its title, both with their texts."""
    pictures = zip(("Label", title), texts, (view.label, view.classes), strict=True)
    panels = [
        ImagePanel(name, f"{text}.", encode_classes(numbers[view.window], colors)) for name, text, numbers in pictures
    ]
    return panels if view.has_labels else panels[1:]


def _error_image(view: MapView, differs: BoolArray) -> EncodedImage:
    """Correct and incorrect test pixels; few of them enlarged, over the image in grey, since they would not show."""
    from scipy.ndimage import maximum_filter

    tested, has_data = view.tested[view.window], view.quicklook.has_data[view.window]
    if tested.mean() >= SPARSE:
        outcome = np.where(tested, differs, 2)
        outcome = np.where(view.classes[view.window] == NO_LABEL, NO_LABEL, outcome).astype(np.uint8)
        return encode_classes(outcome, (CORRECT, INCORRECT, UNTESTED))
    pixels = stretch_contrast(view.quicklook.bands[:, *view.window], has_data)
    pixels = np.repeat(pixels.mean(-1, keepdims=True).astype(np.uint8), 3, axis=-1)
    for color, chosen in ((CORRECT, tested & ~differs), (INCORRECT, tested & differs)):
        pixels[maximum_filter(chosen, max(3, max(tested.shape) // 80))] = rgb(color)
    return encode_photo(pixels, has_data)


def _label_panels(
    view: MapView, presence: UInt8Array, classes: tuple[str, ...], colors: tuple[str, ...]
) -> list[ImagePanel]:
    """The labels of the pixels, the class of the highest probability, and where each class is predicted."""
    crop, title = view.window, "Most probable class"
    of_label, of_map = (_class_shares(numbers[crop], classes) for numbers in (view.label, view.classes))
    panels = _label_and_map(view, title, (f"Label: {of_label}", f"{title}: {of_map}"), colors)
    for name, color, layer in zip(classes, colors, presence[:, *crop], strict=True):
        known = layer[layer != NO_LABEL]
        share = format_percent(float(known.mean()) if known.size else None)
        image = encode_classes(layer, (UNTESTED, color))
        panels.append(ImagePanel(f"Chips with {name}", f"{name} is predicted in {share}.", image))
    return panels + _spread_panels(view)


def _value_panels(view: MapView, values: ValuePixels, colors: tuple[str, ...], unit: str) -> list[ImagePanel]:
    """Label and map, how much the scenes of each pixel differ, and the absolute error in the test areas."""
    crop, title = view.window, "Predicted values"
    texts = f"Label: {_value_text(values.label[crop], unit)}", f"{title}: {_value_text(values.mapped[crop], unit)}"
    panels = _label_and_map(view, title, texts, colors)
    error = np.where(view.tested, np.abs(values.mapped - values.label), np.float32(np.nan)).astype(np.float32)
    panels.append(_size_panel("Standard deviation among the scenes", view.confidence[crop], unit))
    panels += _spread_panels(view, unit)
    return panels + ([_size_panel("Absolute error in the test area", error[crop], unit)] if view.has_labels else [])


def _spread_panels(view: MapView, unit: str = "") -> list[ImagePanel]:
    """How much the members of an ensemble differ; nothing for other models."""
    return [] if view.spread is None else [_size_panel("Spread of the members", view.spread[view.window], unit)]


def _size_panel(name: str, numbers: FloatArray, unit: str) -> ImagePanel:
    """Numbers (y, x) from 0 up to the 98th percentile; dark is large, as dark is uncertain on maps of classes."""
    known = numbers[np.isfinite(numbers)]
    high = float(np.percentile(known, 98)) if known.size else 0.0
    image = encode_ramp(np.asarray(1 - numbers / np.float32(max(high, 1e-12)), np.float32), 0.0)
    ramp = ColorRamp(f"0 {unit}".strip(), f"≥ {high:.3g} {unit}".strip(), tuple(reversed(CONFIDENCE_COLORS)))
    return ImagePanel(name, f"{name}: {_value_text(numbers, unit)}.", image, ramp)


def _value_text(values: FloatArray, unit: str, form: str = ".3g") -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return "none here"
    low, median, high = (f"{value:{form}}" for value in np.percentile(known, (5, 50, 95)))
    return f"median {median} {unit}".rstrip() + f", 90 % of the pixels between {low} and {high} {unit}".rstrip()


def split_panel(quicklook: Quicklook, role: UInt8Array) -> PanelGroup:
    """Training, validation and test areas over a grey quicklook."""
    has_data = quicklook.has_data | (role < len(SPLITS))
    pixels = tint_splits(stretch_contrast(quicklook.bands, quicklook.has_data), role)
    shares = [f"{name} {format_percent(float((role == number).mean()))}" for number, name in enumerate(SPLITS)]
    panel = ImagePanel(
        "Training, validation and test areas",
        f"Areas of the splits: {join_words(shares)} of the grid.",
        encode_photo(pixels, has_data),
    )
    return PanelGroup("", [panel], outline(role == SPLITS.index("test")), role.shape[1], role.shape[0])


def _quicklook_panel(view: MapView) -> ImagePanel:
    crop = view.window
    has_data = view.quicklook.has_data[crop]
    pixels = stretch_contrast(view.quicklook.bands[:, *crop], has_data)
    title = "True colour" if view.quicklook.is_true_colour else "First band"
    alt = f"{title} quicklook of the area, {has_data.shape[1]} by {has_data.shape[0]} pixels."
    return ImagePanel(title, alt, encode_photo(pixels, has_data))


def _class_shares(numbers: UInt8Array, classes: tuple[str, ...]) -> str:
    known = numbers[numbers != NO_LABEL]
    if not known.size:
        return "none here"
    counts = np.bincount(known, minlength=len(classes))
    shares = zip(classes, (counts / known.size).tolist(), strict=False)
    return join_words([f"{name} {format_percent(share)}" for name, share in shares])


def encode_classes(numbers: UInt8Array, colors: tuple[str, ...]) -> EncodedImage:
    """Class numbers (y, x) as a palette PNG; 255 is transparent."""
    from PIL import Image

    image = Image.fromarray(numbers)
    image.putpalette(color_table(colors, "#000000").tobytes())
    return _encode(image, "png", transparency=NO_LABEL, optimize=True)


def encode_ramp(values: FloatArray, low: float) -> EncodedImage:
    """Values (y, x) on the confidence ramp, which spans from `low` to 1; NaN is transparent."""
    return encode_classes(color_levels(values, (low, 1.0), RAMP_LEVELS), mix_colors(CONFIDENCE_COLORS, RAMP_LEVELS))


def stretch_contrast(bands: FloatArray, has_data: BoolArray) -> UInt8Array:
    """Bands (1 or 3, y, x) to red, green and blue (y, x, 3): from the 2nd to the 98th percentile.

    All bands get the same contrast, so colours stay natural; a tone curve lifts land that is dark beside clouds.
    """
    if not has_data.any():
        return np.zeros((*has_data.shape, 3), np.uint8)
    low, high = np.percentile(bands[:, has_data], (2, 98), axis=1).astype(np.float32)[:, :, None, None]
    shares = np.clip((bands - low) / max(float((high - low).max()), 1e-9), 0, 1)
    median = float(np.clip(np.median(shares[:, has_data]), 1e-3, 0.99))
    exponent = float(np.clip(np.log(MEDIAN_TONE) / np.log(median), 0.5, 1))
    pixels = np.where(has_data, shares**exponent * 255, 0).round().astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(np.broadcast_to(pixels, (3, *has_data.shape)), 0, -1))


def tint_splits(pixels: UInt8Array, role: UInt8Array) -> UInt8Array:
    """An image (y, x, 3) in grey, with the areas of train, val and test (0, 1, 2) in their colours."""
    grey = pixels.mean(-1, keepdims=True) * 0.6 + 90
    colors = np.array([rgb(color) for color in SPLIT_COLORS], float)
    mixed = np.where((role < len(SPLIT_COLORS))[..., None], grey * 0.5 + colors[np.minimum(role, 2)] * 0.5, grey)
    return np.asarray(mixed.round(), np.uint8)


def encode_photo(pixels: UInt8Array, has_data: BoolArray) -> EncodedImage:
    """An image (y, x, 3), transparent where there is no data; small ones without loss."""
    from PIL import Image

    alpha = np.where(has_data, 255, 0).astype(np.uint8)[..., None]
    image = Image.fromarray(np.concatenate([pixels, alpha], -1))
    if max(has_data.shape) < CRISP_EDGE:
        return _encode(image, "png", optimize=True)
    return _encode(image, "webp", quality=82)


def _encode(image: "Image", kind: str, **options: Any) -> EncodedImage:
    buffer = BytesIO()
    image.save(buffer, kind.upper(), **options)
    return EncodedImage(buffer.getvalue(), kind, image.width, image.height)


def outline(mask: BoolArray) -> str:
    """The boundary of a mask (y, x) as an SVG path in pixels; empty for an empty mask."""
    return _edges(mask, "M{1} {0}H{2}") + _edges(mask.T, "M{0} {1}V{2}")


def _edges(mask: BoolArray, form: str) -> str:
    """Edges between rows as runs: (row, first column, column after the last)."""
    changes = np.diff(np.pad(mask, ((1, 1), (1, 1))).astype(np.int8), axis=0) != 0
    starts = np.diff(changes.astype(np.int8), axis=1)
    rows, first = np.nonzero(starts == 1)
    _, after = np.nonzero(starts == -1)
    return "".join(form.format(*run) for run in zip(rows.tolist(), first.tolist(), after.tolist(), strict=True))
