"""Areas and accuracy of a map from a labelled sample, as the content of areas.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from eopipe.areas.design import SampleDesign, SampledMap
from eopipe.areas.estimators import Estimate, StratifiedSample
from eopipe.areas.labelled import LabelledSample
from eopipe.areas.population import Population, mapped_at
from eopipe.arrays import Float64Array
from eopipe.documents import OPEN, Count, Ends, NotNegative, Number, Text, read_model
from eopipe.errors import BadInputError, some_of
from eopipe.publish import sha256


class EstimatedValue(BaseModel, **OPEN):
    """An estimate with standard error and 95 % interval, null where fewer than two sampled pixels say anything."""

    estimate: Number
    standard_error: NotNegative | None
    interval: Ends | None


class ClassArea(BaseModel, **OPEN):
    """The hectares of a class: mapped, and estimated; its share of the area; its accuracies, null without a pixel."""

    mapped_hectares: NotNegative
    hectares: EstimatedValue
    share: EstimatedValue
    users_accuracy: EstimatedValue | None
    producers_accuracy: EstimatedValue | None


class LabelledStratum(BaseModel, **OPEN):
    """A stratum with its pixels, hectares, and how many pixels were drawn and have a label."""

    name: Text
    pixels: Count
    hectares: NotNegative
    sampled: Count
    labelled: Count


class AreasDocument(BaseModel, **OPEN):
    """The content of areas.json: of a map of classes `areas`, of one of values `mean`, `mapped_mean` and `bias`."""

    maps: list[SampledMap]
    sampled_maps: list[SampledMap]
    allocation: str
    strata: list[LabelledStratum]
    hectares: NotNegative
    labelled: Count
    unlabelled: Count
    disagreed: list[Count]
    outside: Count
    interpreters: list[Text]
    agreement: list[dict[str, Any]] = []
    notes: list[str] = []
    classes: list[Text] = []
    areas: dict[str, ClassArea] = {}
    overall_accuracy: EstimatedValue | None = None
    # Shares of the area, and pixels, by mapped class (row) and label (column).
    error_matrix: list[list[Number]] = []
    counts: list[list[Count]] = []
    quantity: str = ""
    mean: EstimatedValue | None = None
    mapped_mean: Number | None = None
    bias: EstimatedValue | None = None

    @classmethod
    def read(cls, path: Path) -> "AreasDocument":
        """Read areas.json. Raises BadInputError for another file."""
        return read_model(path, cls, "a file of estimated areas")

    @classmethod
    def of_maps(cls, path: Path, maps: Sequence[Path]) -> "AreasDocument":
        """Read areas.json of some maps. Raises BadInputError for one of other maps."""
        document = cls.read(path)
        if sorted(each.sha256 for each in document.maps) != sorted(map(sha256, maps)):
            raise BadInputError(f"{path} has areas of other maps than {some_of([*map(str, maps)])}; run estimate again")
        return document

    @property
    def is_of_other_maps(self) -> bool:
        """Whether the sample was drawn from other maps than those whose areas are estimated."""
        return sorted(each.sha256 for each in self.maps) != sorted(each.sha256 for each in self.sampled_maps)


def estimate_areas(sample: LabelledSample, maps: Sequence[Path], interpreters: Sequence[str]) -> AreasDocument:
    """Estimate the areas of the classes of maps, or the mean of their values, from a sample with labels.

    Raises BadInputError for maps of other classes than the labels, and for a stratum without a label.
    """
    population = Population.open(maps)
    first, design = population.maps[0], sample.design
    if sorted(first.names) != sorted(design.classes):
        raise BadInputError(
            f"{first.classes} is a map of {some_of(first.names)}, the sample has labels of {some_of(design.classes)}"
        )
    is_labelled = np.isfinite(sample.labels)
    pixels = [pixel for pixel, chosen in zip(design.pixels, is_labelled.tolist(), strict=True) if chosen]
    strata = _strata(design, [pixel.stratum for pixel in pixels])
    estimator = StratifiedSample(
        np.array([pixel.stratum for pixel in pixels]),
        np.array([float(pixel.hectares) for pixel in pixels]),
        np.array([stratum.pixels for stratum in strata]),
        np.array([float(stratum.hectares) for stratum in strata]),
    )
    places = (np.array([float(getattr(pixel, name)) for pixel in pixels]) for name in ("longitude", "latitude"))
    mapped, labels = mapped_at(population.maps, *places), sample.labels[is_labelled]
    # Classes of the map may be in another order than those of the labels.
    if not first.quantity:
        order = np.array([first.names.index(name) for name in design.classes])
        labels = order[labels.astype(int)]
    document: dict[str, Any] = {
        "maps": [{"name": m.classes.name, "sha256": sha256(m.classes), "cell": m.cell} for m in population.maps],
        "sampled_maps": design.maps,
        "allocation": design.allocation,
        "strata": strata,
        "hectares": estimator.total_hectares,
        "labelled": len(pixels),
        "unlabelled": len(design.pixels) - len(pixels) - len(sample.disagreed),
        "disagreed": sample.disagreed,
        "outside": int(np.isnan(mapped).sum()),
        "interpreters": [*interpreters],
        "agreement": sample.agreement,
    }
    of_task = _of_values if first.quantity else _of_classes
    document |= of_task(population, estimator, mapped, labels)
    document["notes"] = _notes(document, strata)
    return AreasDocument.model_validate(document)


def _strata(design: SampleDesign, of_labelled: Sequence[int]) -> list[LabelledStratum]:
    counts = np.bincount(np.array(of_labelled, np.int64), minlength=len(design.strata)).tolist()
    rows = [
        LabelledStratum(labelled=count, **stratum.model_dump())
        for stratum, count in zip(design.strata, counts, strict=True)
    ]
    if empty := [row.name for row in rows if not row.labelled]:
        raise BadInputError(
            f"no sampled pixel of the strata {some_of(empty)} has a label, so nothing is known of their area; label "
            "two pixels of each at least"
        )
    return rows


def _of_classes(
    population: Population, sample: StratifiedSample, mapped: Float64Array, labels: Float64Array
) -> dict[str, Any]:
    """Areas, accuracies and error matrix."""
    names, total = population.maps[0].names, sample.total_hectares
    mapped_hectares, areas = population.count().hectares, {}
    for number, name in enumerate(names):
        is_mapped, is_there = mapped == number, labels == number
        share = sample.ratio(is_there)
        assert share
        areas[name] = {
            "mapped_hectares": float(f"{mapped_hectares[number]:.7g}"),
            "hectares": share.times(total).json_document(),
            "share": share.json_document(),
            "users_accuracy": _document(sample.ratio(is_there, is_mapped)),
            "producers_accuracy": _document(sample.ratio(is_mapped, is_there)),
        }
    is_inside, count = np.isfinite(mapped), len(names)
    pairs = (mapped[is_inside] * count + labels[is_inside]).astype(int)
    shares = np.bincount(pairs, sample.weights[is_inside] / total, count**2).reshape(count, count)
    return {
        "classes": [*names],
        "areas": areas,
        "overall_accuracy": _document(sample.ratio(mapped == labels, None if is_inside.all() else is_inside)),
        "error_matrix": [[float(f"{value:.7g}") for value in row] for row in shares.tolist()],
        "counts": np.bincount(pairs, minlength=count**2).reshape(count, count).tolist(),
    }


def _document(estimate: Estimate | None) -> dict[str, object] | None:
    return estimate.json_document() if estimate else None


def _of_values(
    population: Population, sample: StratifiedSample, mapped: Float64Array, labels: Float64Array
) -> dict[str, Any]:
    """The mean value by the difference estimator: that of the map, corrected by the mean difference in the sample.

    Sarndal, Swensson and Wretman 1992, Model Assisted Survey Sampling, 6.3.
    """
    if np.isnan(mapped).any():
        raise BadInputError(
            f"{int(np.isnan(mapped).sum())} labelled pixels are outside of {population.maps[0].classes}; the "
            "difference of labels and map needs a map of all of the sampled area"
        )
    mean, bias = population.mean(), sample.mean(labels - mapped)
    ends = None if bias.interval is None else (mean + bias.interval[0], mean + bias.interval[1])
    return {
        "quantity": population.maps[0].quantity,
        "mean": Estimate(mean + bias.value, bias.standard_error, ends).json_document(),
        "mapped_mean": float(f"{mean:.7g}"),
        "bias": Estimate(
            -bias.value, bias.standard_error, bias.interval and (-bias.interval[1], -bias.interval[0])
        ).json_document(),
    }


def _notes(document: dict[str, Any], strata: Sequence[LabelledStratum]) -> list[str]:
    """Sentences about what the figures do not say by themselves."""
    notes = []
    if alone := [row.name for row in strata if row.labelled < 2 and row.pixels > row.labelled]:
        notes.append(
            f"{some_of(alone)}: one labelled pixel has no variance, so there is no standard error; label a second one."
        )
    few = [name for name, row in document.get("areas", {}).items() if row["hectares"]["standard_error"] is None]
    if few and not alone:
        notes.append(f"{some_of(few)}: fewer than two sampled pixels have this label, which have no variance.")
    if document["unlabelled"]:
        notes.append(
            f"{document['unlabelled']} sampled pixels have no label; they are taken for pixels like the others."
        )
    if document["disagreed"]:
        listed = some_of([str(identity) for identity in document["disagreed"]])
        notes.append(f"Interpreters disagree, without a majority, on the pixels {listed}, which are left out.")
    if document["outside"]:
        notes.append(
            f"{document['outside']} labelled pixels are outside of the map; they count for areas, not for its accuracy."
        )
    return notes
