"""Arrays to pictures: PNG where a pixel is a class, JPEG where a picture is a large photograph."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eopipe.reporting.palette import LEVELS, ramp, rgb
from eopipe.store import NO_LABEL

if TYPE_CHECKING:
    from PIL.Image import Image

Numbers = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
CRISP = 400
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


def indexed(numbers: Numbers, colors: tuple[str, ...]) -> Picture:
    """Numbers (y, x) in the colours of a palette; 255 is transparent."""
    from PIL import Image

    image = Image.fromarray(numbers)
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colors)] = [rgb(color) for color in colors]
    image.putpalette(palette.tobytes())
    return _encoded(image, "png", transparency=NO_LABEL, optimize=True)


def confidence(shares: Floats) -> Picture:
    """Shares of 0 to 1 (y, x) on the ramp; NaN is transparent."""
    there = np.isfinite(shares)
    level = np.clip(np.where(there, shares, 0) * LEVELS, 0, LEVELS - 1).astype(np.uint8)
    colors = tuple("#" + bytes(color).hex() for color in ramp())
    return indexed(np.where(there, level, NO_LABEL).astype(np.uint8), colors)


def errors(label: Numbers, classes: Numbers, tested: npt.NDArray[np.bool_]) -> Picture:
    """Where the map is right (0), wrong (1) and outside the test places (2)."""
    found = np.where(tested, (label != classes).astype(np.uint8), 2)
    return indexed(np.where(classes == NO_LABEL, NO_LABEL, found).astype(np.uint8), (RIGHT, WRONG, UNTESTED))


def stretched(bands: Floats, seen: npt.NDArray[np.bool_]) -> Numbers:
    """Bands (1 or 3, y, x) to red, green and blue (y, x, 3): each from its 2nd to its 98th percentile."""
    if not seen.any():
        return np.zeros((*seen.shape, 3), np.uint8)
    low, high = np.percentile(bands[:, seen], (2, 98), axis=1).astype(np.float32)[:, :, None, None]
    shares = np.clip((bands - low) / np.maximum(high - low, 1e-9), 0, 1) ** 0.85
    pixels = np.where(seen, shares * 255, 0).round().astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(np.broadcast_to(pixels, (3, *seen.shape)), 0, -1))


def photo(pixels: Numbers, seen: npt.NDArray[np.bool_]) -> Picture:
    """A picture (y, x, 3); small ones keep every pixel and are transparent where nothing is seen."""
    from PIL import Image

    if max(seen.shape) < CRISP:
        alpha = np.where(seen, 255, 0).astype(np.uint8)[..., None]
        return _encoded(Image.fromarray(np.concatenate([pixels, alpha], -1)), "png", optimize=True)
    return _encoded(Image.fromarray(pixels), "jpeg", quality=84)


def tinted(pixels: Numbers, role: Numbers) -> Numbers:
    """A picture (y, x, 3) in grey, with the places of train, val and test (0, 1, 2) in their colours."""
    grey = pixels.mean(-1, keepdims=True) * 0.6 + 90
    colors = np.array([rgb(color) for color in ROLES], float)
    mixed = np.where((role < len(ROLES))[..., None], grey * 0.5 + colors[np.minimum(role, 2)] * 0.5, grey)
    return mixed.round().astype(np.uint8)


def _encoded(image: "Image", kind: str, **options: Any) -> Picture:
    buffer = BytesIO()
    image.save(buffer, kind.upper(), **options)
    return Picture(buffer.getvalue(), kind, image.width, image.height)
