"""Calibrated probabilities: one temperature, fitted on labelled samples of the validation places.

A temperature T makes probabilities p proportional to p**(1/T), which is softmax(log(p) / T), so the classes stay the
same. T minimises the negative log-likelihood of the labels (temperature scaling, Guo et al. 2017, arXiv:1706.04599). It
is fitted on the mean over the scenes, since that is published, and averaging makes probabilities less confident
(Rahaman and Thiery 2021, arXiv:2007.08792). Independent probabilities of several labels have one temperature for the
logits of all classes, so every label stays present or absent.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.documents import OPEN, read_document
from eopipe.errors import BadInputError
from eopipe.tasks.task import FLOOR, softmax

log = logging.getLogger("eopipe")
LOWEST, HIGHEST = 0.05, 20.0


@dataclass(frozen=True)
class Calibration:
    """The temperature of maps of a model; `summary` is one sentence about its fit, `model` the id of the model.

    `is_mosaic`: it was fitted for one map of the scenes, else for the map of each, with predictions of `symmetries`.
    """

    temperature: float
    model: str
    scenes: tuple[str, ...]
    summary: str
    is_mosaic: bool = True
    symmetries: int = 1

    @property
    def tags(self) -> dict[str, Any]:
        """Tags of the map whose probabilities it was applied to."""
        return {"temperature": f"{self.temperature:.6g}", "calibration": self.summary}

    def check(self, model: str, scenes: list[str], symmetries: int) -> None:
        """Raise BadInputError where it was fitted for another model or symmetries; warn where for other scenes."""
        if self.model != model:
            raise BadInputError(f"the calibration is of model {self.model}, not of {model}; calibrate this model")
        if self.symmetries != symmetries:
            raise BadInputError(
                f"the calibration was fitted for symmetries {self.symmetries}, not {symmetries}; "
                "calibrate again with the symmetries of the map"
            )
        is_fitted = self.scenes == tuple(scenes) if self.is_mosaic else len(scenes) == 1 and scenes[0] in self.scenes
        if not is_fitted:
            effect = "the mean over its own scenes" if self.is_mosaic else "maps of one of its own scenes"
            counts = len(self.scenes), len(scenes)
            log.warning("event=other_scenes calibrated=%d predicted=%d effect='it fits %s'", *counts, effect)


class _CalibrationDocument(BaseModel, **OPEN):
    """What the stage calibrate writes, of what others read."""

    temperature: Annotated[float, Field(ge=LOWEST, le=HIGHEST)]
    model: str
    scenes: list[str]
    summary: str
    maps: Literal["mosaic", "each image"] = "mosaic"
    symmetries: Literal[1, 2, 4, 8] = 1


def read_calibration(path: Path) -> Calibration:
    """Read what `calibrate` wrote. Raises BadInputError for anything else."""
    content = read_document(path, _CalibrationDocument, "a calibration, as calibrate writes one")
    temperature = float(content["temperature"])
    is_mosaic = content.get("maps", "mosaic") == "mosaic"
    symmetries = int(content.get("symmetries", 1))
    return Calibration(
        temperature, content["model"], tuple(content["scenes"]), content["summary"], is_mosaic, symmetries
    )


def fit_temperature(probability: AnyArray, truth: IntArray) -> float:
    """The temperature that minimises the log loss of samples: probabilities (class, n) and true classes (n,).

    In 1/T the loss is convex. The truth of n samples counts 1 - 1/(n + 2) and the other classes share the rest (Platt
    1999, Advances in Large Margin Classifiers), so that samples without a single error do not ask for a temperature
    of 0. The result has six significant digits and is from 0.05 to 20.
    """
    from scipy.optimize import brentq

    if len(probability) < 2:
        return 1.0
    logits, targets = _logits(probability, truth)
    target = targets.mean()

    def slope(log_temperature: float) -> float:
        """Derivative of the mean loss with respect to 1/T: expected minus labelled log-probability."""
        return float((softmax(logits * np.exp(-log_temperature)) * logits).sum(0).mean() - target)

    ends = float(np.log(LOWEST)), float(np.log(HIGHEST))
    # The expected log-probability falls as the temperature rises.
    if slope(ends[0]) <= 0:
        return LOWEST
    if slope(ends[1]) >= 0:
        return HIGHEST
    return float(f"{np.exp(brentq(slope, *ends, xtol=1e-9)):.6g}")


def loss_derivatives(probability: AnyArray, truth: IntArray, temperature: float) -> Float64Array:
    """First and second derivative (2, n) of the loss of each sample that `fit_temperature` minimises, by 1/T."""
    logits, targets = _logits(probability, truth)
    calibrated = softmax(logits / temperature)
    mean = (calibrated * logits).sum(0)
    return np.stack([mean - targets, (calibrated * logits**2).sum(0) - mean**2])


def _logits(probability: AnyArray, truth: IntArray) -> tuple[Float64Array, Float64Array]:
    """Logarithms (class, n) of probabilities, and of the truth (n,), a small part of which other classes have."""
    logits = np.log(np.maximum(probability, FLOOR, dtype=np.float64))
    of_truth, smoothing = logits[truth, np.arange(len(truth))], 1 / (len(truth) + 2)
    others = (logits.sum(0) - of_truth) / max(len(logits) - 1, 1)
    return logits, (1 - smoothing) * of_truth + smoothing * others
