"""Chips beside their labels and what the model finds, as one PNG."""

from functools import partial
from io import BytesIO

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, IntArray, UInt8Array

MOST, GAP = 4, 2
# Colours that stay apart for eyes that confuse red and green (Okabe and Ito 2008); then by hue.
COLORS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
NOTHING = 24


def png(
    images_NCHW: FloatArray,
    truth_NHW: AnyArray,
    found_NHW: AnyArray,
    bands: tuple[str, ...],
    no_label: int,
) -> bytes:
    """Rows of chip, label and prediction, each (H, W), for the first chips of a batch; `bands` names the channels.

    Labels are class numbers, or values (float) that become greys between the lowest and the highest of the batch.
    """
    from PIL import Image

    if truth_NHW.dtype.kind == "f":
        draw = partial(shade, low=float(np.nanmin(truth_NHW)), high=float(np.nanmax(truth_NHW)))
    else:
        draw = partial(paint, no_label=no_label)
    rows = [
        _row(natural(image, bands), draw(truth), draw(found))
        for image, truth, found in list(zip(images_NCHW, truth_NHW, found_NHW, strict=True))[:MOST]
    ]
    file = BytesIO()
    Image.fromarray(np.concatenate(rows)).save(file, "PNG")
    return file.getvalue()


def _row(*parts: UInt8Array) -> UInt8Array:
    """Pictures (H, W, 3) side by side, with a gap around them."""
    return np.concatenate([np.pad(part, ((GAP, 0), (GAP, 0), (0, 0))) for part in parts], axis=1)


def natural(image_CHW: FloatArray, bands: tuple[str, ...]) -> UInt8Array:
    """Red, green and blue where they are there, else the first band in grey: (H, W, 3), stretched."""
    names = ("red", "green", "blue")
    chosen = [bands.index(name) for name in names] if set(names) <= set(bands) else [0, 0, 0]
    picked = np.nan_to_num(image_CHW[chosen]).transpose(1, 2, 0)
    low, high = np.percentile(picked, (2, 98))
    stretched: UInt8Array = (np.clip((picked - low) / max(float(high - low), 1e-9), 0, 1) * 255).astype(np.uint8)
    return stretched


def shade(values_HW: FloatArray, low: float, high: float) -> UInt8Array:
    """A grey from dark to light for each value between two, (H, W, 3); black where there is none."""
    share = np.clip((np.nan_to_num(values_HW, nan=low) - low) / max(high - low, 1e-9), 0, 1)
    grey = np.where(np.isfinite(values_HW), 2 * NOTHING + share * (255 - 2 * NOTHING), 0)
    shaded: UInt8Array = np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)
    return shaded


def paint(classes_HW: IntArray, no_label: int) -> UInt8Array:
    """A colour a class, (H, W, 3); dark where there is no label."""
    palette = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in COLORS], np.uint8)
    painted: UInt8Array = palette[classes_HW % len(COLORS)]
    painted[classes_HW == no_label] = NOTHING
    return painted
