"""Synthetic landscapes, spatially autocorrelated like real ones."""

from typing import Any

import numpy as np


def field(edge: int, seed: int, scale: int) -> Any:
    """A smooth random field of mean 0 and standard deviation 1."""
    from scipy.ndimage import gaussian_filter, zoom

    small = gaussian_filter(np.random.default_rng(seed).normal(size=(edge // scale + 8,) * 2), 2).astype("float32")
    field = zoom(small / small.std(), scale, order=1)
    return field[:edge, :edge]


def reflectance(edge: int, seed: int) -> Any:
    """Stored reflectance: landscape, fields and sensor noise."""
    noise = np.random.default_rng(seed).normal(0, 14, (edge, edge)).astype("float32")
    values = 1900 + 150 * seed + 500 * field(edge, 99, 61) + 120 * field(edge, seed, 13) + noise
    return np.clip(values + 60 * field(edge, seed + 50, 5), 1, 16000).astype("uint16")


def classes(edge: int) -> Any:
    """Classes of SCL: cloud, cloud shadow and vegetation."""
    return np.select([field(edge, 7, 61) > 1.2, field(edge, 8, 31) > 1.4], [9, 3], 4).astype("uint8")
