"""Chips beside their labels and predictions, as one PNG."""

from io import BytesIO

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, UInt8Array

MAX_ROWS, GAP = 4, 2
# Colours that remain distinct with red-green colour blindness (Okabe and Ito 2008); then the others by hue.
COLORS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
NO_LABEL_GREY = 24


def preview_png(
    images_NCHW: FloatArray, labels_NHW: AnyArray, predictions_NHW: AnyArray, bands: tuple[str, ...], no_label: int
) -> bytes:
    """Rows of chip, label and prediction for the first chips of a batch, as PNG; `bands` names the channels.

    Class numbers are drawn in colours; values (float) in greys between the lowest and the highest label of the batch.
    """
    from PIL import Image

    labels, predictions = (
        greys(maps_NHW, float(np.nanmin(labels_NHW)), float(np.nanmax(labels_NHW)))
        if labels_NHW.dtype.kind == "f"
        else class_colors(maps_NHW, no_label)
        for maps_NHW in (labels_NHW, predictions_NHW)
    )
    images = np.stack([true_color(image_CHW, bands) for image_CHW in images_NCHW[:MAX_ROWS]])
    columns = (column[:MAX_ROWS] for column in (images, labels, predictions))
    padded = [np.pad(column, ((0, 0), (GAP, 0), (GAP, 0), (0, 0))) for column in columns]
    file = BytesIO()
    Image.fromarray(np.concatenate(np.concatenate(padded, 2))).save(file, "PNG")
    return file.getvalue()


def true_color(image_CHW: FloatArray, bands: tuple[str, ...]) -> UInt8Array:
    """Red, green and blue, or else the first band in grey, stretched to the 2nd and 98th percentile: (H, W, 3)."""
    names = ("red", "green", "blue")
    channels = [bands.index(name) for name in names] if set(names) <= set(bands) else [0, 0, 0]
    pixels = np.nan_to_num(image_CHW[channels]).transpose(1, 2, 0)
    low, high = np.percentile(pixels, (2, 98))
    stretched: UInt8Array = (np.clip((pixels - low) / max(float(high - low), 1e-9), 0, 1) * 255).astype(np.uint8)
    return stretched


def greys(values: AnyArray, low: float, high: float) -> UInt8Array:
    """A grey from dark to light for each value between two, (..., 3); black where it is not finite."""
    share = np.clip((np.nan_to_num(values, nan=low) - low) / max(high - low, 1e-9), 0, 1)
    grey = np.where(np.isfinite(values), 2 * NO_LABEL_GREY + share * (255 - 2 * NO_LABEL_GREY), 0)
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=-1)


def class_colors(classes: AnyArray, no_label: int) -> UInt8Array:
    """A colour for each class, (..., 3); dark where there is no label."""
    palette = np.array([tuple(bytes.fromhex(color[1:])) for color in COLORS], np.uint8)
    colors: UInt8Array = palette[classes % len(COLORS)]
    colors[classes == no_label] = NO_LABEL_GREY
    return colors
