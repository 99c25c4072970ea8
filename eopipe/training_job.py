"""One training as the launcher hands it to the workers, in a JSON file: data, model, settings and knobs.

Settings and knobs are the options of the stage `train`: a new option is written there and nowhere else.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from eopipe.chips.chips import Normaliser, pair_stores
from eopipe.contract import stage
from eopipe.errors import BadInputError, UsageError
from eopipe.launch.environment import parse_nodes
from eopipe.launch.scratch import local_path
from eopipe.models import Architecture
from eopipe.models.model_files import module_of
from eopipe.models.model_folder import read_network
from eopipe.ports import annotated
from eopipe.tasks import TASKS
from eopipe.tasks.task import WEIGHTED_LOSSES
from eopipe.text_files import read_json, write_json
from eopipe.tiles.store import Tiles
from eopipe.train_options import PIXEL_MODELS, ClassWeights, LossName, PixelModelName, TrainKnobs, TrainOptions

if TYPE_CHECKING:
    from torch import nn

# Beside the checkpoints of a training.
JOB = "job.json"
# What a custom model expects of its input, as pretrained weights do; without the first they have no effect.
WEIGHTS_OPTIONS = ("weights_bands", "weights_mean", "weights_std", "weights_scale")
Pairs = list[tuple[Tiles, Tiles]]


# Shorter trainings hardly leave their random start, and have not seen each labelled pixel often enough.
FEWEST_STEPS, FEWEST_PASSES = 200, 5


@dataclass(frozen=True)
class TrainingLength:
    """The length of a training in steps, and how often it is validated.

    `labelled` counts the labelled pixels on the ground in the training places, each once whatever chips and dates cover
    it, or the chips of a task with labels for whole chips; `passes` is how often each of them is seen.
    """

    steps: int
    validate_every: int
    labelled: int
    passes: float
    unit: str = "labelled pixels"

    @classmethod
    def of_model(cls, settings: Mapping[str, Any], task: str) -> Self | None:
        """The length of the training of a model with these settings; None where they do not have it."""
        if not {"steps", "labelled", "passes"} <= settings.keys():
            return None
        return cls(settings["steps"], 1, settings["labelled"], settings["passes"], TASKS[task].counted_labels)

    def __str__(self) -> str:
        return f"{self.steps} steps, {self.passes:.3g} passes over {self.labelled} {self.unit}"

    def is_validated(self, step: int) -> bool:
        """Whether the weights after this number of steps are validated: at regular intervals, and the last ones."""
        return step > 0 and (step % self.validate_every == 0 or step == self.steps)

    def pause(self, share: float) -> int:
        """The first validated step at or after a share of the steps (0 to 1), where a training may pause."""
        # Without the error of the product: 0.07 of 100 steps are 7.
        first = max(1, math.ceil(round(share * self.steps, 6)))
        return next(step for step in range(first, self.steps + 1) if self.is_validated(step))

    @property
    def warning(self) -> str:
        """A sentence about a training that is too short; empty for any other."""
        if self.steps >= FEWEST_STEPS and self.passes >= FEWEST_PASSES:
            return ""
        # The settings of a model have passes in hundredths, and so perhaps none.
        enough = max(FEWEST_STEPS, math.ceil(self.steps * FEWEST_PASSES / (self.passes or 0.01)))
        return (
            f"the training has {self}; with less than {FEWEST_STEPS} steps or {FEWEST_PASSES} passes a model learns "
            f"little, and train.steps: {enough} gives both"
        )


@cache
def _model_of(group: str) -> type[BaseModel]:
    """A model with a field for each port of the stage `train` in this group."""
    ports = [port for port in stage("train").ports if port.group == group]
    kinds: dict[str, Any] = {port.name: (annotated(port), port.default) for port in ports}
    return create_model(group, __config__=ConfigDict(extra="forbid"), **kinds)


def _checked(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of these ports, of their types and within their constraints. Raises UsageError for wrong ones."""
    try:
        return dict(_model_of(group)(**values))
    except ValidationError as error:
        mistakes = (f"train.{row['loc'][0]} is {row['input']!r}: {row['msg']}" for row in error.errors())
        raise UsageError("; ".join(mistakes)) from error


# The options that decide a model of pixels.
OF_PIXEL_MODELS = ("task", "architecture", "arguments", "class_weights", "max_pixels", "seed")


@dataclass(frozen=True, kw_only=True)
class Settings(TrainOptions):
    """The options of the stage `train`, checked, with the loss of the task and the class weights of the loss."""

    if TYPE_CHECKING:
        # Filled in where a call does not have them; the batch of a job, which depends on the chips, by TrainingData.
        loss: LossName = "cross_entropy"
        class_weights: ClassWeights = "none"
        averaged_with: tuple[PixelModelName, ...] = ()
        batch: int = 0

    def __post_init__(self) -> None:
        """Check all values. Raises UsageError for wrong ones."""
        values = _checked("options", vars(self))
        values["loss"] = values["loss"] or TASKS[values["task"]].losses[0]
        default_weights = "fourth_root" if values["loss"] in WEIGHTED_LOSSES else "none"
        values["class_weights"] = values["class_weights"] or default_weights
        values["averaged_with"] = values["averaged_with"] or TASKS[values["task"]].averaged_with(values["architecture"])
        vars(self).update(values)

    @property
    def fitted_beside(self) -> tuple[str, ...]:
        """The models of pixels that a network is averaged with."""
        return tuple(name for name in self.averaged_with if name != "none")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Select them from the values of a call of the stage. Raises UsageError for wrong ones."""
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})

    def conflicts(self) -> list[str]:
        """Settings that exclude each other, a sentence each."""
        task = TASKS[self.task]
        of_pixels = [*self.fitted_beside, *([self.architecture] if self.architecture in PIXEL_MODELS else [])]
        sentences = task.conflicts(self.loss, self.class_weights, of_pixels) + self._weights_conflicts()
        if self.steps and self.epochs:
            sentences.append("train.steps and train.epochs are both given; remove one of them")
        if task.is_of_chips and self.crop:
            sentences.append(f"train.crop is for labels of pixels, and task {self.task} has labels of chips; remove it")
        sentences += [
            f"train.{name} is for task {other} and has no effect on {self.task}; remove it"
            for name, other in options_of_other_tasks(self.task).items()
            if getattr(self, name) != getattr(TrainOptions, name)
        ]
        return sentences + (self._deterministic_conflicts() if self.deterministic else [])

    def deciding(self) -> dict[str, Any]:
        """Those that decide the weights: not the number of processes where virtual shards replace it."""
        without_effect = options_without_effect(self.architecture, self.task, self.deterministic)
        without_effect += () if self.weights_bands else WEIGHTS_OPTIONS
        return {k: v for k, v in vars(self).items() if k not in without_effect}

    def _weights_conflicts(self) -> list[str]:
        bands, mean, std = self.weights_bands, self.weights_mean, self.weights_std
        sentences = []
        if bands and not module_of(self.architecture):
            sentences.append(
                f"train.weights_bands is for pretrained weights of a custom model, and {self.architecture} has none"
            )
        if not bands and (mean or std or self.weights_scale != 1):
            sentences.append("train.weights_mean, weights_std and weights_scale need train.weights_bands")
        if bands and len(mean) != len(std):
            sentences.append("train.weights_mean and train.weights_std need one number per band of train.weights_bands")
        elif bands and mean and len(mean) != len(bands):
            sentences.append(
                f"train.weights_mean has {len(mean)} numbers for the {len(bands)} bands of train.weights_bands"
            )
        return sentences

    def _deterministic_conflicts(self) -> list[str]:
        nodes = parse_nodes(self.nodes).maximum
        sentences = []
        if self.processes * nodes > self.shards:
            workers = f"train.processes {self.processes}" + (f" on {nodes} nodes" if self.nodes != "1" else "")
            sentences.append(f"{workers} is more than train.shards {self.shards}; raise that")
        if self.batch and self.batch < self.shards:
            sentences.append(f"train.batch {self.batch} is less than train.shards {self.shards}; lower train.shards")
        if self.strategy != "ddp":
            sentences.append("train.deterministic sums whole gradients; it needs train.strategy ddp")
        if self.accumulate > 1:
            sentences.append(
                "train.deterministic processes a batch shard by shard; raise train.shards instead of train.accumulate"
            )
        return sentences


def options_without_effect(architecture: str, task: str, deterministic: bool) -> tuple[str, ...]:
    """Settings that change only speed, and those of other tasks and of models that are trained in another way."""
    if architecture in PIXEL_MODELS:
        return tuple(item.name for item in fields(TrainOptions) if item.name not in OF_PIXEL_MODELS)
    return (*(("processes", "nodes") if deterministic else ("shards",)), *options_of_other_tasks(task))


def options_of_other_tasks(task: str) -> dict[str, str]:
    """The options that a task does not read, each with a task that does."""
    options = {name: other.name for other in TASKS.values() for name in other.options}
    return {name: other for name, other in options.items() if name not in TASKS[task].options}


@dataclass(frozen=True, kw_only=True)
class Knobs(TrainKnobs):
    """The knobs of the stage `train`, checked."""

    def __post_init__(self) -> None:
        """Check all values. Raises UsageError for wrong ones."""
        vars(self).update(_checked("knobs", vars(self)))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Select them from the values of a call of the stage. Raises UsageError for wrong ones."""
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})


class Job(BaseModel):
    """One training: its data, model, settings, knobs and folders. Paths are absolute.

    `loss_weights` (one for each class, or none), `target` (mean and standard deviation of the labels of a regression)
    and `length` are computed from the training labels. `token` is the fencing token of the lease. `pause` is the step
    after which the training pauses, and `continued` the model folder of a training that paused earlier.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    chips: Path
    init: Path | None = None
    continued: Path | None = None
    # Tensors of the head that `init` does not initialise, since its classes are others.
    new_head: tuple[str, ...] = ()
    architecture: Architecture
    bands: tuple[str, ...]
    normaliser: Normaliser
    # Edge of a chip in pixels, and of random crops of it in training (0: whole chips).
    chip: int
    crop: int = 0
    settings: Settings
    knobs: Knobs
    loss_weights: tuple[float, ...] = ()
    target: tuple[float, ...] = ()
    length: TrainingLength
    pause: int | None = None
    state: Path
    views: Path
    token: int = 0

    @property
    def stores(self) -> dict[str, tuple[Path, ...]]:
        """The stores that the workers read, by kind."""
        return {"tiles": self.tiles, "labels": self.labels}

    @cached_property
    def pairs(self) -> Pairs:
        """The tile store of each scene with its labels, opened once; this node's own copies where it has some."""
        tiles, labels = (tuple(local_path(kind, path) for path in paths) for kind, paths in self.stores.items())
        return pair_stores(tiles, labels)

    def hyperparameters(self) -> dict[str, Any]:
        """All settings, and what was computed from the labels."""
        return vars(self.settings) | self._computed()

    def deciding(self) -> dict[str, Any]:
        """What decides the weights, besides the data and the code."""
        return self.settings.deciding() | self._computed()

    def _computed(self) -> dict[str, Any]:
        length = {"steps": self.length.steps, "labelled": self.length.labelled, "passes": round(self.length.passes, 2)}
        length["crop"] = self.crop
        return {"weights": self.loss_weights, "target": self.target} | length

    def build_model(self) -> "nn.Module":
        """The model before the first step: fresh or with the weights of `init`, parts frozen, LoRA adapters added.

        A head for other classes than `init` has is fresh.

        Raises UsageError where it has nothing to learn.
        """
        from eopipe.models.build import add_lora_adapters, freeze

        module = self.architecture.build()
        if next(module.parameters(), None) is None:
            raise UsageError(f"model {self.architecture.name} has no trainable weights")
        if self.init:
            try:
                fresh = module.state_dict()
                module.load_state_dict(read_network(self.init) | {name: fresh[name] for name in self.new_head})
            except RuntimeError as error:
                raise BadInputError(f"the weights of {self.init} do not fit the model: {error}") from error
        return add_lora_adapters(freeze(module, self.settings.freeze), self.settings.freeze, self.settings.lora)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, checked again."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)

    def write(self, path: Path) -> None:
        """Write the job for the workers."""
        write_json(path, self.model_dump(mode="json"))


def read_job(path: Path) -> Job:
    """Read a job that the launcher wrote."""
    return Job(**read_json(path))
