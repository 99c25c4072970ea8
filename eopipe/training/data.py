"""The inputs of a training, opened and digested once; its state key, identity, job and extent are functions of them."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np

from eopipe.chips.audit import check_statistics
from eopipe.chips.block_choice import describe_unvalidated
from eopipe.chips.chips import Normaliser, chip_votes, pair_stores, quantity_of, unit_of
from eopipe.chips.make_split import check_scenes
from eopipe.chips.polygons import labelled_ground_pixels
from eopipe.chips.splits import Split, read_split
from eopipe.chips.statistics import Statistics, band_normaliser, label_scaling, read_statistics
from eopipe.contract import stage
from eopipe.errors import BadInputError, UsageError
from eopipe.loader.chip_reader import chip_sources
from eopipe.models import Architecture
from eopipe.models.build import unwrapped_name
from eopipe.models.input_check import ORDINARY, TileProperties
from eopipe.models.model_files import libraries
from eopipe.models.model_folder import TrainedModel, read_trained_model
from eopipe.publish import content_digest, digest
from eopipe.stac.write import ItemExtent, extent_of
from eopipe.tasks import TASKS
from eopipe.tasks.task import WEIGHT_POWERS, Task
from eopipe.tiles.store import Tiles
from eopipe.training.model_checks import check_init_fits, check_init_folder, dry_run, fixed_window, head_tensors
from eopipe.training.schedule import default_batch, default_crop, training_length
from eopipe.training_job import Job, Knobs, Pairs, Settings, TrainingLength

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class TrainingInputs:
    """The input files and folders of the stage `train`."""

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    chips: Path
    statistics: Path
    init: Path | None = None
    model_files: tuple[Path, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "TrainingInputs":
        """Select them from the values of a call of the stage."""
        return cls(*(values[field.name] for field in fields(cls)))


@dataclass(frozen=True)
class TrainingData:
    """The opened inputs: stores paired with their labels and sorted by scene, the split, the band statistics."""

    inputs: TrainingInputs
    pairs: Pairs
    split: Split
    statistics: Statistics
    # The area and period of the pixels. A place that has none is refused before the first step, not behind the last.
    extent: ItemExtent

    @classmethod
    def open(cls, inputs: TrainingInputs) -> "TrainingData":
        """Open the inputs. Raises BadInputError or IntegrityError where they do not belong together."""
        if inputs.init:
            check_init_folder(inputs.init)
        pairs = pair_stores(inputs.tiles, inputs.labels)
        split, statistics = read_split(inputs.chips), read_statistics(inputs.statistics)
        check_scenes(split, pairs)
        check_statistics(statistics, split, [image for image, _ in pairs])
        if sentence := describe_unvalidated(split.pixels["val"]):
            log.warning("event=class_without_validation message=%r", sentence)
        grids = [cell.grid for cell in pairs[0][0].frame.cells]
        return cls(inputs, pairs, split, statistics, extent_of(grids, [image.attributes for image, _ in pairs]))

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands, in the order of the first scene."""
        return self.pairs[0][0].names

    @property
    def labels(self) -> Tiles:
        """The labels of the first scene; all others have the same classes, or the same unit."""
        return self.pairs[0][1]

    def normaliser(self, settings: Settings) -> Normaliser:
        """Mean and standard deviation of each band: of the training chips, or as pretrained weights expect them."""
        return weights_normaliser(band_normaliser(self.statistics, self.bands), self.bands, settings)

    def describe_model(self, architecture: Architecture, settings: Settings, target: tuple[float, ...]) -> TrainedModel:
        """A model that these data train, without its weights."""
        ranges = {name: band.quantiles(ORDINARY) for name, band in self.statistics.bands.items()}
        trained_on = TileProperties.of([image for image, _ in self.pairs], ranges)
        task = (settings.task, target, unit_of(self.labels), trained_on)
        names, normaliser = self.labels.names, self.normaliser(settings)
        return TrainedModel(architecture, self.bands, names, normaliser, self.split.chip, *task)

    @cached_property
    def digests(self) -> dict[str, Any]:
        """The sha256 of each input, by port; of stores in the order of the inputs."""
        return {
            "tiles": [digest(path) for path in self.inputs.tiles],
            "labels": [digest(path) for path in self.inputs.labels],
            "chips": digest(self.inputs.chips),
            "statistics": digest(self.inputs.statistics),
            "init": digest(self.inputs.init) if self.inputs.init else None,
            "model_files": {path.name: content_digest(path) for path in self.inputs.model_files} or None,
        }

    def job(self, settings: Settings, knobs: Knobs, state_root: Path, views: Path) -> Job:
        """The job of a training on these data. Raises UsageError or BadInputError for what cannot work."""
        settings = replace(settings, batch=settings.batch or default_batch(settings.task, self.split.chip))
        if conflicts := settings.conflicts():
            raise UsageError("; ".join(conflicts))
        values = vars(settings) | {"model_files": self.inputs.model_files}
        architecture = Architecture.of(values, self.bands, len(self.labels.names))
        # Without paths of this machine.
        settings = replace(settings, architecture=architecture.name, arguments=architecture.arguments)
        target, weights = self.computed_from_labels(settings)
        crop = self._crop(settings, architecture)
        job = Job(
            tiles=tuple(path.resolve() for path in self.inputs.tiles),
            labels=tuple(path.resolve() for path in self.inputs.labels),
            chips=self.inputs.chips.resolve(),
            init=self.inputs.init.resolve() if self.inputs.init else None,
            new_head=self._new_head(architecture),
            state=state_root.resolve(),
            views=views.resolve(),
            target=target,
            loss_weights=weights,
            length=self._length(settings, crop),
            architecture=architecture,
            bands=self.bands,
            normaliser=self.normaliser(settings),
            chip=self.split.chip,
            crop=crop,
            settings=settings,
            knobs=knobs,
        )
        self._check(job)
        return job.replace(state=job.state / self.key(job.deciding()))

    def computed_from_labels(self, settings: Settings) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of the values of a regression, and weights of the classes in the loss; or empty."""
        task = TASKS[settings.task]
        if sentence := task.label_conflict(str(self.labels.path), quantity_of(self.labels)):
            raise BadInputError(sentence)
        if not task.has_classes:
            return label_scaling(self.statistics, self.inputs.statistics), ()
        counts = {name: self.split.pixels["train"].get(name, 0) for name in self.labels.names}
        total = sum(counts.values())
        if task.is_of_chips:
            counts, total = count_chips(task, self.split, self.pairs, settings.min_share)
        power = WEIGHT_POWERS[settings.class_weights]
        return (), task.loss_weights(counts, total, power) if power else ()

    def _new_head(self, architecture: Architecture) -> tuple[str, ...]:
        """Tensors of the head that are new, because `init` has other classes."""
        if not self.inputs.init:
            return ()
        check_init_fits(self.inputs.init, architecture, self.bands)
        if read_trained_model(self.inputs.init).classes == self.labels.names:
            return ()
        return head_tensors(architecture)

    def _crop(self, settings: Settings, architecture: Architecture) -> int:
        """Edge in pixels of the crops; 0 for whole chips. Raises UsageError for crops that the chips do not have."""
        chip, step = self.split.chip, architecture.factor
        if settings.crop is None:
            fits = not TASKS[settings.task].is_of_chips and architecture.takes_any_window and chip % step == 0
            return min(chip, -(-default_crop(chip) // step) * step) if fits else 0
        if settings.crop > chip or settings.crop % step:
            raise UsageError(f"train.crop is {settings.crop}; choose a multiple of {step} up to {chip}, the split.chip")
        return int(settings.crop)

    def _length(self, settings: Settings, crop: int) -> TrainingLength:
        samples = self.split.samples["train"]
        if TASKS[settings.task].is_of_chips:
            return training_length(vars(settings), len(samples), len(samples), 1.0)
        labels = [label for _, label in self.pairs]
        labelled = labelled_ground_pixels(labels, samples, self.split.chip, self.split.polygons)
        per_chip = sum(self.split.pixels["train"].values()) / max(1, len(samples))
        part = (crop / self.split.chip) ** 2 if crop else 1.0
        return training_length(vars(settings), len(samples), labelled, per_chip, part)

    def _check(self, job: Job) -> None:
        """Check what can be checked before any worker starts."""
        settings, chip = job.settings, job.chip
        if settings.head_learning_rate and not job.new_head:
            raise UsageError(
                "train.head_learning_rate is for a new head, which a training from train.init with other classes has; "
                "remove it"
            )
        if frozen := [name for name in job.new_head if unwrapped_name(name).startswith(settings.freeze)]:
            raise UsageError(f"train.freeze has {frozen[0]}, but the head for other classes than train.init has is new")
        module = job.build_model()
        if settings.patience and not len(self.split.samples["val"]):
            raise UsageError("train.patience needs validation scores, but the split has no val chips; set it to 0")
        if chip % job.architecture.factor:
            raise UsageError(
                f"chips of {chip} pixels cannot be halved {settings.depth} times; "
                f"choose split.chip as a multiple of {job.architecture.factor}, or a smaller train.depth"
            )
        for edge in sorted({chip, job.crop or chip}):
            if sentence := dry_run(module, job.architecture, edge, settings.task):
                log.warning("event=model_output_stretched reason=%r", sentence)
        if (window := fixed_window(module, job.architecture, chip)) not in (0, chip):
            raise UsageError(f"{job.architecture.name} takes images of {window} x {window}; set split.chip: {window}")
        # Reports which scene lacks a band.
        chip_sources(self.pairs, job.bands)

    def key(self, deciding: Mapping[str, Any]) -> str:
        """The name of the state folder of a job that decides this: other data or settings never resume it."""
        digests = {
            name: sorted(value) if isinstance(value, list) else value
            for name, value in self.digests.items()
            if value is not None
        }
        versions = libraries(deciding["architecture"], self.inputs.model_files)
        digests |= {"libraries": versions} if versions else {}
        text = json.dumps(digests | {"settings": deciding}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def identity(self, job: Job) -> dict[str, Any]:
        """All that decides the weights, by name, so that a difference can be reported."""
        tensors = job.architecture.build().state_dict()
        names = {"tiles": self.inputs.tiles, "labels": self.inputs.labels}
        stores = {
            port: {path.name: value for path, value in zip(paths, self.digests[port], strict=True)}
            for port, paths in names.items()
        }
        content = {
            "data": self.digests | stores,
            "settings": job.deciding(),
            "tensors": {name: list(value.shape) for name, value in tensors.items()},
            # The same settings give other weights with other code.
            "revision": {"eopipe": stage("train").revision, "torch": version("torch")}
            | libraries(job.architecture.name, self.inputs.model_files),
        }
        return cast(dict[str, Any], json.loads(json.dumps(content)))


def weights_normaliser(of_chips: Normaliser, bands: tuple[str, ...], settings: Settings) -> Normaliser:
    """Mean and standard deviation of each band in the unit of the tiles: those that pretrained weights expect of it.

    Bands that they do not know, and all without `weights_mean`, have the training chips' values. Raises BadInputError
    where the two are so far apart that the unit must be another: ten standard deviations, or a factor of 50 between
    the deviations.
    """
    scale, expected = settings.weights_scale, {}
    for band, mean, std in zip(settings.weights_bands, settings.weights_mean, settings.weights_std, strict=False):
        expected[band] = (mean / scale, std / scale)
    pairs, other_unit = [], []
    for band, mean, std in zip(bands, of_chips.mean, of_chips.std, strict=True):
        pair = expected.get(band) or expected.get(band.rpartition("_")[0])
        pairs.append(pair or (mean, std))
        if pair and (abs(mean - pair[0]) > 10 * pair[1] or not 1 / 50 < std / pair[1] < 50):
            other_unit.append(f"{band} is {mean:.3g} ± {std:.2g}, not {pair[0]:.3g} ± {pair[1]:.2g}")
    if other_unit:
        raise BadInputError(
            f"the training chips are not in the unit of train.weights_mean and weights_std: {'; '.join(other_unit)}; "
            "set train.weights_scale to what 1 in the unit of the tiles is in the unit of the weights, such as 10000"
        )
    return Normaliser(tuple(mean for mean, _ in pairs), tuple(std for _, std in pairs))


def count_chips(task: Task, split: Split, pairs: Pairs, min_share: float) -> tuple[dict[str, int], int]:
    """Training chips with each class as their class, or among their labels, and the number of labelled training chips.

    Raises BadInputError where each class is that of all chips or of none, so that there is nothing to learn.
    """
    names = pairs[0][1].names
    votes = chip_votes(pairs, split.samples["train"], split.chip)
    labels = task.of_votes(votes[votes.any(1)], min_share)
    if not len(labels):
        raise BadInputError("no training chip has a label, so there is no class to learn; check labels and masks")
    numbers = labels.sum(0) if labels.ndim > 1 else np.bincount(labels, minlength=len(names))
    counts = dict(zip(names, numbers.tolist(), strict=True))
    if all(count in (0, len(labels)) for count in counts.values()):
        always = ", ".join(name for name, count in counts.items() if count)
        other_options = "".join(f"another train.{name}, " for name in task.options)
        raise BadInputError(
            f"every training chip is labelled {always}, so there is nothing to distinguish; choose split.chip smaller, "
            f"{other_options}or other classes"
        )
    log.info("event=labels chips=%d %s", len(labels), " ".join(f"{name!r}={count}" for name, count in counts.items()))
    return counts, len(labels)
