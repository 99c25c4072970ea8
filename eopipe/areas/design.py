"""The design of a sample: how many pixels each stratum gets, and the file that says which pixels were drawn how.

Good practice is that of Olofsson et al. 2014 (doi:10.1016/j.rse.2014.02.015): strata are the classes of the map, and a
rare one gets more pixels than its share. The number for a standard error is by Cochran 1977, Sampling Techniques, 5.25.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from eopipe.arrays import Float64Array, IntArray
from eopipe.documents import OPEN, Count, NotNegative, Number, PositiveCount, Share, Text, checked, read_document
from eopipe.errors import BadInputError, UsageError, some_of

Allocation = Literal["proportional", "equal", "neyman"]
NOUN = "the design of a sample"


class SampledMap(BaseModel, **OPEN):
    """A map that the sample was drawn from."""

    name: Text
    sha256: Text
    cell: str


class Stratum(BaseModel, **OPEN):
    """A stratum: its pixels, their hectares on the ground, and how many were drawn."""

    name: Text
    pixels: PositiveCount
    hectares: Annotated[Number, Field(gt=0)]
    sampled: Count


class SampledPixel(BaseModel, **OPEN):
    """A sampled pixel by its id: the numbers of its stratum and map, its class (number) or value there, its place."""

    id: PositiveCount
    stratum: Count
    map: Count
    row: Count
    column: Count
    mapped: Number
    hectares: Annotated[Number, Field(gt=0)]
    inclusion_probability: Annotated[Share, Field(gt=0)]
    longitude: Annotated[Number, Field(ge=-180, le=180)]
    latitude: Annotated[Number, Field(ge=-90, le=90)]


class SampleDesign(BaseModel, **OPEN):
    """The content of sample.json: which pixels of which maps were drawn, by which rule."""

    classes: Annotated[list[Text], Field(min_length=1)]
    # With its unit; empty where labels are classes.
    quantity: str
    maps: Annotated[list[SampledMap], Field(min_length=1)]
    allocation: Allocation
    minimum: Count
    seed: Count
    standard_error: NotNegative | None
    strata: Annotated[list[Stratum], Field(min_length=1)]
    pixels: Annotated[list[SampledPixel], Field(min_length=1)]

    @classmethod
    def read(cls, path: Path) -> "SampleDesign":
        """Read sample.json. Raises BadInputError for another file."""
        return cls._checked(read_document(path, cls, NOUN, "pixels"), str(path))

    @classmethod
    def of_document(cls, document: Any, label: str) -> "SampleDesign":
        """The design that another file contains; raises BadInputError as `read`."""
        return cls._checked(checked(cls, document, label, NOUN, "pixels"), label)

    @classmethod
    def _checked(cls, document: Any, label: str) -> "SampleDesign":
        design = cls.model_validate(document)
        counts = np.bincount([pixel.stratum for pixel in design.pixels], minlength=len(design.strata))
        if [*counts] != [stratum.sampled for stratum in design.strata]:
            raise BadInputError(f"{label} is not {NOUN}: its strata have other numbers of pixels than it says")
        if len({pixel.id for pixel in design.pixels}) < len(design.pixels):
            raise BadInputError(f"{label} is not {NOUN}: it has an id twice")
        if any(stratum.sampled > stratum.pixels for stratum in design.strata):
            raise BadInputError(f"{label} is not {NOUN}: more pixels are drawn of a stratum than it has")
        return design


def expected_spreads(texts: Sequence[str], names: Sequence[str]) -> Float64Array:
    """The standard deviation of being right in each stratum, by its expected accuracy: 0.8, or water=0.95.

    Raises UsageError for other texts, and for a class that the map does not have.
    """
    accuracy: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 < value < 1:
            raise UsageError(
                f"--expected-accuracy {text} is neither a share such as 0.8 nor one of a class as water=0.95"
            )
        if name and name not in names:
            raise UsageError(f"--expected-accuracy names {name}, but the map has {', '.join(names)}")
        accuracy[name] = value
    shares = np.array([accuracy.get(name, accuracy.get("", 0.8)) for name in names])
    return np.asarray(np.sqrt(shares * (1 - shares)))


def number_for(standard_error: float, hectares: Float64Array, spreads: Float64Array) -> int:
    """The pixels of a proportional sample whose overall accuracy has this standard error."""
    weights = hectares / hectares.sum()
    return max(math.ceil(float((weights * spreads).sum() / standard_error) ** 2), 2)


def allocate(number: int, pixels: IntArray, weights: Float64Array, minimum: int, names: Sequence[str]) -> IntArray:
    """Divide a number of pixels among strata by weights; each gets the minimum, or all that it has.

    What strata get beyond their share by weight is taken from the others. Strata without pixels get none. Raises
    UsageError where the number is less than the minima, or more than there are pixels.
    """
    least = np.minimum(pixels, minimum)
    if number < least.sum():
        raise UsageError(
            f"{number} pixels are fewer than the minimum of {minimum} in each of {np.count_nonzero(pixels)} strata "
            f"({some_of(list(names))}), {least.sum()} together; give a larger --number or a smaller --minimum"
        )
    if number > pixels.sum():
        raise UsageError(f"{number} pixels are more than the map has, {pixels.sum()}; give a smaller --number")
    shares = np.where(pixels > 0, weights, 0.0)
    sizes, is_free = np.zeros(len(pixels)), pixels > 0
    while is_free.any():
        rest = number - sizes[~is_free].sum()
        total = shares[is_free].sum()
        shares_of_rest = rest * (shares / total if total else is_free / is_free.sum())
        below, above = is_free & (shares_of_rest < least), is_free & (shares_of_rest > pixels)
        # Those that take pixels from the others first: what is left may then be below more minima.
        fixed = below if below.any() else above
        if not fixed.any():
            sizes[is_free] = shares_of_rest[is_free]
            break
        sizes[fixed] = (least if below.any() else pixels)[fixed]
        is_free &= ~fixed
    return _rounded(sizes, number, pixels)


def _rounded(sizes: Float64Array, number: int, most: IntArray) -> IntArray:
    """Whole numbers with this sum, by the largest remainders."""
    whole = np.floor(sizes + 1e-9).astype(np.int64)
    order = np.argsort(-(sizes - whole), kind="stable")
    while (missing := number - int(whole.sum())) > 0:
        chosen = order[(whole < most)[order]][:missing]
        whole[chosen] += 1
    return whole
