"""Radiometric augmentation of training chips; labels are unchanged.

Each augmentation is a pure function of (seed, epoch, sample) made of single products and sums, which every processor
rounds alike: it depends on no other sample, no worker and no device.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import Float64Array, IntArray

if TYPE_CHECKING:
    from eopipe.training_job import Settings

DROP_PROBABILITY = 0.1  # probability that a band is dropped
MAX_GAIN, MAX_SHIFT = 0.1, 0.2  # largest change of brightness: share of the contrast, standard deviations of the band
MAX_HAZE, AIRLIGHT = 0.4, 2.0  # largest opacity of haze; brightness of the airlight in standard deviations
KNOTS = 4  # haze changes smoothly between this many knots along an edge


def augment(
    images_NCHW: Tensor, labels_NHW: Tensor, numbers: IntArray, epoch: int, settings: "Settings"
) -> tuple[Tensor, Tensor]:
    """Augment normalised images (N, band, H, W) of these sample numbers as listed in `settings.augment`.

    Values are standard deviations from the mean of a band. A pixel of zeros only is invalid and stays zero.
    Symmetries, which change the labels too, are applied by the chip reader.
    """
    kinds = [kind for kind in ("brightness", "haze", "bands") if kind in settings.augment]
    if not kinds or not len(numbers):
        return images_NCHW, labels_NHW
    is_measured = (images_NCHW != 0).any(1, keepdim=True)
    for kind in kinds:
        # A random stream for each kind: adding one to the list changes no other.
        generators = [_generator(settings.seed, epoch, int(number), 1 + KINDS.index(kind)) for number in numbers]
        images_NCHW = _CHANGES[kind](images_NCHW, generators)
    return images_NCHW * is_measured, labels_NHW


def brightness(images_NCHW: Tensor, generators: list[np.random.Generator]) -> Tensor:
    """Random contrast and brightness, the same for all bands and pixels of a sample."""
    uniform = np.stack([g.uniform(-1, 1, 2) for g in generators])
    gain, shift = _like_tensor(
        images_NCHW, np.stack([1 + MAX_GAIN * uniform[:, 0], MAX_SHIFT * uniform[:, 1]], 1)[..., None, None]
    ).unbind(1)
    return images_NCHW * gain[:, None] + shift[:, None]


def haze(images_NCHW: Tensor, generators: list[np.random.Generator]) -> Tensor:
    """Haze that varies smoothly in space, with another opacity for each band.

    The atmospheric scattering model, I = J t + A (1 - t) (Narasimhan and Nayar 2002,
    doi:10.1023/A:1016328200723).
    """
    bands = images_NCHW.shape[1]
    knots = np.stack([g.uniform(0, MAX_HAZE) * g.uniform(0, 1, (KNOTS, KNOTS)) for g in generators])
    band_opacity = np.stack([g.uniform(0, 1, bands) for g in generators])[..., None, None]
    opacity = bilinear_field(_like_tensor(images_NCHW, knots), images_NCHW.shape[2:])[:, None] * _like_tensor(
        images_NCHW, band_opacity
    )
    return images_NCHW * (1 - opacity) + opacity * AIRLIGHT


def bilinear_field(knots_NKK: Tensor, shape: torch.Size) -> Tensor:
    """Bilinear fields (N, H, W) through knots (N, K, K) that are evenly spaced, the outer ones on the border."""
    for axis, edge in ((1, shape[0]), (2, shape[1])):
        count = knots_NKK.shape[axis] - 1
        position = torch.arange(edge, device=knots_NKK.device, dtype=knots_NKK.dtype) * (count / max(edge - 1, 1))
        lower = position.long().clamp(max=count - 1)
        weight = (position - lower).reshape(-1, 1) if axis == 1 else position - lower
        before, after = knots_NKK.index_select(axis, lower), knots_NKK.index_select(axis, lower + 1)
        knots_NKK = before * (1 - weight) + after * weight
    return knots_NKK


def drop_bands(images_NCHW: Tensor, generators: list[np.random.Generator]) -> Tensor:
    """Set random bands to their mean (0), but never all of a sample."""
    bands = images_NCHW.shape[1]
    keep_mask = np.stack([_keep_mask(g, bands) for g in generators])[..., None, None]
    return images_NCHW * _like_tensor(images_NCHW, keep_mask)


def _keep_mask(generator: np.random.Generator, bands: int) -> Float64Array:
    keep_mask = generator.uniform(size=bands) >= DROP_PROBABILITY
    keep_mask[generator.integers(bands)] = True
    return keep_mask.astype(float)


KINDS = ("brightness", "haze", "bands")
_CHANGES = {"brightness": brightness, "haze": haze, "bands": drop_bands}


def _like_tensor(images: Tensor, values: Float64Array) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(images)


def _generator(seed: int, epoch: int, sample: int, kind: int) -> np.random.Generator:
    # The order of the data and the symmetries use streams whose second word is 0.
    return np.random.Generator(np.random.Philox(counter=[0, kind, sample, epoch], key=seed))
