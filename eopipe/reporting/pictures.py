"""Arrays to pictures: PNG where a pixel is a class, lossy WebP where a picture is a large photograph."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import BoolArray, FloatArray, UInt8Array
from eopipe.reporting.palette import LEVELS, ramp, rgb
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from PIL.Image import Image

CRISP = 400
MIDDLE = 0.3
RIGHT, WRONG = "#a9c7dc", "#d1490c"
UNTESTED = "#e9e9e6"
ROLES = ("#3b8fd0", "#b06fc4", "#f0a11a")


@dataclass(frozen=True)
class Picture:
    """An encoded picture of (width, height) pixels; `crisp` ones are enlarged without smoothing."""

    data: bytes
    kind: str
    width: int
    height: int

    @property
    def crisp(self) -> bool:
        """Whether it is so small that its pixels should show."""
        return max(self.width, self.height) < CRISP

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode()}"


def indexed(numbers: UInt8Array, colors: tuple[str, ...]) -> Picture:
    """Numbers (y, x) in the colours of a palette; 255 is transparent."""
    from PIL import Image

    image = Image.fromarray(numbers)
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colors)] = [rgb(color) for color in colors]
    image.putpalette(palette.tobytes())
    return _encoded(image, "png", transparency=NO_LABEL, optimize=True)


def confidence(shares: FloatArray, chance: float) -> Picture:
    """Shares (y, x) on the ramp, which spans from chance to 1; NaN is transparent."""
    there = np.isfinite(shares)
    level = (np.where(there, shares, 0) - chance) / (1 - chance) * LEVELS
    level = np.clip(level, 0, LEVELS - 1).astype(np.uint8)
    colors = tuple("#" + bytes(color).hex() for color in ramp())
    return indexed(np.where(there, level, NO_LABEL).astype(np.uint8), colors)


def errors(label: UInt8Array, classes: UInt8Array, tested: BoolArray) -> Picture:
    """Where the map is right (0), wrong (1) and outside the test places (2)."""
    found = np.where(tested, (label != classes).astype(np.uint8), 2)
    return indexed(np.where(classes == NO_LABEL, NO_LABEL, found).astype(np.uint8), (RIGHT, WRONG, UNTESTED))


def stretched(bands: FloatArray, seen: BoolArray) -> UInt8Array:
    """Bands (1 or 3, y, x) to red, green and blue (y, x, 3): from the 2nd to the 98th percentile.

    All bands get the same contrast, so colours stay natural; a tone curve lifts land that is dark beside clouds.
    """
    if not seen.any():
        return np.zeros((*seen.shape, 3), np.uint8)
    low, high = np.percentile(bands[:, seen], (2, 98), axis=1).astype(np.float32)[:, :, None, None]
    shares = np.clip((bands - low) / max(float((high - low).max()), 1e-9), 0, 1)
    middle = float(np.clip(np.median(shares[:, seen]), 1e-3, 0.99))
    curve = float(np.clip(np.log(MIDDLE) / np.log(middle), 0.5, 1))
    pixels = np.where(seen, shares**curve * 255, 0).round().astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(np.broadcast_to(pixels, (3, *seen.shape)), 0, -1))


def photo(pixels: UInt8Array, seen: BoolArray) -> Picture:
    """Encode a picture (y, x, 3), transparent where nothing is seen; small ones keep every pixel."""
    from PIL import Image

    alpha = np.where(seen, 255, 0).astype(np.uint8)[..., None]
    image = Image.fromarray(np.concatenate([pixels, alpha], -1))
    return _encoded(image, "png", optimize=True) if max(seen.shape) < CRISP else _encoded(image, "webp", quality=82)


def tinted(pixels: UInt8Array, role: UInt8Array) -> UInt8Array:
    """Turn a picture (y, x, 3) grey, with the places of train, val and test (0, 1, 2) in colours."""
    grey = pixels.mean(-1, keepdims=True) * 0.6 + 90
    colors = np.array([rgb(color) for color in ROLES], float)
    mixed = np.where((role < len(ROLES))[..., None], grey * 0.5 + colors[np.minimum(role, 2)] * 0.5, grey)
    tints: UInt8Array = mixed.round().astype(np.uint8)
    return tints


def _encoded(image: "Image", kind: str, **options: Any) -> Picture:
    buffer = BytesIO()
    image.save(buffer, kind.upper(), **options)
    return Picture(buffer.getvalue(), kind, image.width, image.height)
