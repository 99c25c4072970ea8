"""The options and knobs of the stage `train`: each field is a port of the stage, with its mark."""

from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Literal

from eopipe.contract import Knob, Option

# Each file in `tasks/`, which nothing here imports, but those of what they have in common.
_MODULES = iter_modules([str(Path(__file__).with_name("tasks"))])
TASK_NAMES = tuple(name for _, name, _ in _MODULES if name not in ("task", "tables"))
if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[TASK_NAMES]
LossName = Literal["cross_entropy", "focal", "dice", "lovasz", "huber", "mse", "binary_cross_entropy", "binary_focal"]
TrackerName = Literal["tensorboard", "mlflow", "prometheus"]
# The models of pixels, and what they see: bands, or also their mean and deviation in the 5 x 5 pixels around a pixel.
PIXEL_MODELS = FOREST, BOOSTING, LINEAR = ("forest", "boosting", "linear")
FEATURES = BANDS, TEXTURE = ("bands", "texture")
PixelModelName = Literal["none", "forest", "boosting", "linear"]
ClassWeights = Literal["none", "fourth_root", "sqrt", "balanced"]
# Keys of the scores of `eopipe.tasks` by which trials can be ranked: here, where nothing heavy is imported.
RankingScore = Literal[
    "accuracy", "miou", "f1_macro", "kappa", "f1_micro", "subset_accuracy", "hamming_loss", "rmse", "mae", "r2"
]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What decides the weights, besides the data."""

    task: Annotated[
        TaskName,
        Option(
            "learning task: the class of each pixel, the majority class of each chip, all classes of each chip "
            "(multilabel), or the value of each pixel"
        ),
    ] = "segmentation"
    min_share: Annotated[
        float,
        Option(
            "minimum share of the labelled pixels of a chip that a class needs to be one of its labels, for task "
            "multilabel",
            gt=0,
            le=1,
        ),
    ] = 0.05
    architecture: Annotated[
        str,
        Option(
            "model architecture: unet, convnext, temporal; forest, boosting or linear on pixels and their texture; or "
            "a class of your own or of a library as module:Class or file.py:Class"
        ),
    ] = "unet"
    width: Annotated[int, Option("channels of the first level", ge=1, le=4096)] = 16
    depth: Annotated[int, Option("downsampling levels: how often the model halves its input", ge=1, le=6)] = 2
    arguments: Annotated[
        tuple[str, ...],
        Option("further model arguments as name=value, with values in JSON, e.g. size=tiny", advanced=True),
    ] = ()
    weights_bands: Annotated[
        tuple[str, ...],
        Option(
            "bands of pretrained weights of a custom model, in their order, e.g. red green blue: its first layer is "
            "changed to the bands of the run by name",
            advanced=True,
        ),
    ] = ()
    weights_mean: Annotated[
        tuple[float, ...],
        Option("mean of each band of weights_bands that the weights expect (default: training chips)", advanced=True),
    ] = ()
    weights_std: Annotated[
        tuple[float, ...],
        Option("standard deviation of each band of weights_bands that the weights expect", advanced=True),
    ] = ()
    weights_scale: Annotated[
        float,
        Option(
            "unit of weights_mean and weights_std: what 1 in the unit of the tiles is in theirs, e.g. 10000 for "
            "digital numbers of a reflectance",
            gt=0,
            advanced=True,
        ),
    ] = 1.0
    freeze: Annotated[
        tuple[str, ...], Option("prefixes of parameter names to freeze, e.g. encoder.", advanced=True)
    ] = ()
    lora: Annotated[
        int,
        Option("rank of LoRA adapters in the frozen layers, through peft (eopipe[lora]); 0: off", ge=0, advanced=True),
    ] = 0
    steps: Annotated[
        int | None,
        Option(
            "number of training steps (default: 200 to 750, by the labelled pixels of the training; where a "
            "chip has one label 200, or 10 passes over the chips)",
            ge=1,
        ),
    ] = None
    epochs: Annotated[
        int | None, Option("number of epochs, passes over the pixels of the training chips; in place of steps", ge=1)
    ] = None
    batch: Annotated[
        int | None,
        Option(
            "global batch size: chips per step over all processes (default: 8; where a chip has one label, as many as "
            "have 262,144 pixels, from 8 to 64)",
            ge=1,
        ),
    ] = None
    crop: Annotated[
        int | None,
        Option(
            "edge in pixels of the random crops around labelled pixels that a step takes of its chips; 0: whole chips "
            "(default: 32, or 64 for chips of 256 and more, where labels are of pixels and the model takes any window)",
            ge=0,
        ),
    ] = None
    averaged_with: Annotated[
        tuple[PixelModelName, ...],
        Option(
            "models of pixels that are fitted beside a network: the model is the mean of all; or none (default: forest "
            "and linear for unet where labels are of pixels)"
        ),
    ] = ()
    max_pixels: Annotated[
        int,
        Option(
            "largest number of labelled pixels that forest, boosting and linear learn from, drawn at random of more",
            ge=1,
        ),
    ] = 100_000
    learning_rate: Annotated[float, Option("peak learning rate of AdamW", gt=0)] = 4e-3
    head_learning_rate: Annotated[
        float | None,
        Option(
            "fine-tuning to other classes: peak learning rate of the new head (default: learning_rate)",
            gt=0,
            advanced=True,
        ),
    ] = None
    schedule: Annotated[
        Literal["cosine", "linear", "polynomial", "step", "constant"], Option("learning-rate schedule after warm-up")
    ] = "cosine"
    weight_decay: Annotated[float, Option("decoupled weight decay of AdamW", ge=0)] = 1e-2
    warmup: Annotated[float, Option("learning-rate warm-up as a fraction of all steps", ge=0, le=1)] = 0.2
    loss: Annotated[
        LossName | None,
        Option(
            "loss function (default: cross_entropy; binary_cross_entropy for multilabel, huber for regression); "
            "dice and lovasz are means over chips, not pixels"
        ),
    ] = None
    class_weights: Annotated[
        ClassWeights | None,
        Option(
            "class weights in cross_entropy and focal: the inverse frequency to a power, of 1 for balanced (the same "
            "total weight for every class), 1/2 for sqrt, 1/4 for fourth_root (default where the loss takes weights); "
            "for multilabel, weights of the chips with a class against those without it"
        ),
    ] = None
    ema: Annotated[
        float,
        Option(
            "EMA decay per step; the averaged weights are validated and saved; 0: off",
            ge=0,
            lt=1,
            advanced=True,
        ),
    ] = 0.0
    patience: Annotated[
        int,
        Option(
            "early stopping after this many validations without a better val score, with the best weights; 0: never",
            ge=0,
        ),
    ] = 0
    augment: Annotated[
        tuple[Literal["none", "symmetries", "brightness", "haze", "bands"], ...],
        Option(
            "data augmentation: symmetries (flips, rotations), brightness, haze, bands (dropped at random); or none"
        ),
    ] = ("symmetries",)
    shuffle: Annotated[
        Literal["chips", "blocks"],
        Option("shuffling: a permutation of all chips, or block by block for data larger than memory", advanced=True),
    ] = "chips"
    window: Annotated[int, Option("shuffle window: blocks that are mixed at a time", ge=1, advanced=True)] = 16
    block: Annotated[int, Option("edge in pixels of the blocks that are read and cached", ge=1, advanced=True)] = 1024
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"],
        Option("floating-point precision; bf16 and fp16 are AMP (autocast), fp16 with a loss scale"),
    ] = "fp32"
    seed: Annotated[int, Option("random seed of weights, data order and augmentation", ge=0)] = 0
    processes: Annotated[
        int, Option("processes per node; without deterministic their number changes the last bits", ge=1)
    ] = 1
    nodes: Annotated[str, Option("number of nodes, or MIN:MAX for elastic training")] = "1"
    threads: Annotated[int, Option("CPU threads per process; more change the order of sums", ge=1, advanced=True)] = 1
    deterministic: Annotated[
        bool,
        Option("same weights for any number of processes: gradients of virtual shards are summed in a fixed order"),
    ] = False
    shards: Annotated[
        int,
        Option(
            "virtual shards of a batch in deterministic mode; at least the number of processes", ge=1, advanced=True
        ),
    ] = 4
    strategy: Annotated[
        Literal["ddp", "fsdp"],
        Option("parallel strategy: DDP (whole weights in each process) or FSDP2 (sharded weights)", advanced=True),
    ] = "ddp"
    accumulate: Annotated[int, Option("gradient-accumulation micro-batches per step", ge=1, advanced=True)] = 1
    clip: Annotated[float | None, Option("gradient clipping: clip gradients to this norm", gt=0)] = None
    compile: Annotated[
        bool, Option("compile the model with torch.compile; without a compiler it runs uncompiled", advanced=True)
    ] = False
    channels_last: Annotated[bool, Option("channels-last memory format", advanced=True)] = False


@dataclass(frozen=True, kw_only=True)
class TrainKnobs:
    """What changes only speed or place of a training."""

    recompute: Annotated[
        bool, Knob("activation checkpointing: recompute activations in the backward pass to save memory", advanced=True)
    ] = False
    device: Annotated[Literal["auto", "cpu", "cuda"], Knob("device to compute on")] = "auto"
    checkpoint_every: Annotated[int, Knob("steps between checkpoints", ge=1)] = 50
    keep: Annotated[int, Knob("number of newest checkpoints to keep, besides the best", ge=2, advanced=True)] = 2
    cache_mb: Annotated[int, Knob("tile cache of each process in MB", ge=16, advanced=True)] = 1024
    workers: Annotated[
        int | None, Knob("data-loader processes for each process (default: 0 on a CPU, 2 on a GPU)", ge=0)
    ] = None
    timeout_s: Annotated[float, Knob("seconds after which a silent worker counts as hung", gt=0, advanced=True)] = 600.0
    restarts: Annotated[int, Knob("restarts of lost or hung workers", ge=0, advanced=True)] = 3
    scratch: Annotated[
        str | None,
        Knob("local folder of each node, e.g. $TMPDIR, for a copy of the data during the training", advanced=True),
    ] = None
    state: Annotated[Path | None, Knob("folder of checkpoints (default: beside the model)", advanced=True)] = None
    track: Annotated[
        tuple[TrackerName, ...],
        Knob("experiment trackers that follow the training while it runs"),
    ] = ()
    profile: Annotated[
        bool, Knob("profiler: write a trace of a few steps and a table of their operators", advanced=True)
    ] = False
    views: Annotated[
        Path | None, Knob("output folder of track and profile (default: beside the model)", advanced=True)
    ] = None
    tell_every_s: Annotated[float, Knob("seconds between two progress lines of the log", gt=0, advanced=True)] = 30.0
