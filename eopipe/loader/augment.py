"""Changes of light that a training chip may see; labels stay as they are.

Each is a pure function of (seed, epoch, sample) and made of single products and sums, which every processor
rounds alike: it depends on no other sample, no worker and no device.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import Float64Array, IntArray

if TYPE_CHECKING:
    from eopipe.training_job import Settings

DROP = 0.1  # chance of a band to be dropped
GAIN, SHIFT = 0.1, 0.2  # largest change of brightness: share of the contrast, standard deviations of the band
VEIL, LIGHT = 0.4, 2.0  # thickest haze: share of the light from above, which is this many deviations bright
KNOTS = 4  # haze changes smoothly between this many knots along an edge


def augment(
    images_NCHW: Tensor, labels_NHW: Tensor, numbers: IntArray, epoch: int, settings: "Settings"
) -> tuple[Tensor, Tensor]:
    """Change normalised images (N, band, H, W) of these sample numbers as `settings.augment` lists.

    Values are standard deviations from the mean of a band. A pixel of zeros only is one that was not measured,
    and stays so. Symmetries, which turn the labels too, are the reader's.
    """
    words = [word for word in ("brightness", "haze", "bands") if word in settings.augment]
    if not words or not len(numbers):
        return images_NCHW, labels_NHW
    there = (images_NCHW != 0).any(1, keepdim=True)
    for word in words:
        # A stream of its own for each kind: adding one to the list changes no other.
        draws = [_stream(settings.seed, epoch, int(number), 1 + KINDS.index(word)) for number in numbers]
        images_NCHW = _CHANGES[word](images_NCHW, draws)
    return images_NCHW * there, labels_NHW


def brightness(images_NCHW: Tensor, draws: list[np.random.Generator]) -> Tensor:
    """Another contrast and level, each the same for all bands and pixels of a sample."""
    drawn = np.stack([d.uniform(-1, 1, 2) for d in draws])
    gain, shift = _like(
        images_NCHW, np.stack([1 + GAIN * drawn[:, 0], SHIFT * drawn[:, 1]], 1)[..., None, None]
    ).unbind(1)
    return images_NCHW * gain[:, None] + shift[:, None]


def haze(images_NCHW: Tensor, draws: list[np.random.Generator]) -> Tensor:
    """A veil of light that varies smoothly in space and hides each band in another measure.

    The model of atmospheric scattering, I = J t + A (1 - t) (Narasimhan and Nayar 2002,
    doi:10.1023/A:1016328200723).
    """
    bands = images_NCHW.shape[1]
    knots = np.stack([d.uniform(0, VEIL) * d.uniform(0, 1, (KNOTS, KNOTS)) for d in draws])
    share = np.stack([d.uniform(0, 1, bands) for d in draws])[..., None, None]
    veil = smooth(_like(images_NCHW, knots), images_NCHW.shape[2:])[:, None] * _like(images_NCHW, share)
    return images_NCHW * (1 - veil) + veil * LIGHT


def smooth(knots_NKK: Tensor, shape: torch.Size) -> Tensor:
    """Bilinear fields (N, H, W) through knots (N, K, K) that are spread evenly, the outer ones on the rim."""
    for axis, edge in ((1, shape[0]), (2, shape[1])):
        count = knots_NKK.shape[axis] - 1
        place = torch.arange(edge, device=knots_NKK.device, dtype=knots_NKK.dtype) * (count / max(edge - 1, 1))
        low = place.long().clamp(max=count - 1)
        weight = (place - low).reshape(-1, 1) if axis == 1 else place - low
        before, after = knots_NKK.index_select(axis, low), knots_NKK.index_select(axis, low + 1)
        knots_NKK = before * (1 - weight) + after * weight
    return knots_NKK


def drop_bands(images_NCHW: Tensor, draws: list[np.random.Generator]) -> Tensor:
    """Bands become their mean, each by chance, but never all of a sample."""
    bands = images_NCHW.shape[1]
    kept = np.stack([_kept(d, bands) for d in draws])[..., None, None]
    return images_NCHW * _like(images_NCHW, kept)


def _kept(draw: np.random.Generator, bands: int) -> Float64Array:
    kept = draw.uniform(size=bands) >= DROP
    kept[draw.integers(bands)] = True
    return kept.astype(float)


KINDS = ("brightness", "haze", "bands")
_CHANGES = {"brightness": brightness, "haze": haze, "bands": drop_bands}


def _like(images: Tensor, values: Float64Array) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(images)


def _stream(seed: int, epoch: int, sample: int, kind: int) -> np.random.Generator:
    # The order of the data and the symmetries use streams whose second word is 0.
    return np.random.Generator(np.random.Philox(counter=[0, kind, sample, epoch], key=seed))
