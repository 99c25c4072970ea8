"""Chips -> a trained model, through torchrun."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

# 2: model.json is a STAC Item.
REVISION = 2


def train(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    chips: Annotated[Path, Input("samples of each split", format="application/json")],
    statistics: Annotated[Path, Input("what the bands measure in the training chips", format="application/json")],
    model: Annotated[Path, Output("model", "weights (safetensors), model, history and metrics (JSON)", folder=True)],
    *,
    task: Annotated[
        Literal["segmentation", "classification", "regression"],
        Option("what is learned: the class of each pixel, the class of most pixels of a chip, or each pixel's value"),
    ] = "segmentation",
    init: Annotated[Path | None, Input("model by eopipe whose weights it begins with", folder=True, user=True)] = None,
    architecture: Annotated[str, Option("unet, convnext, temporal, or module:Class of your own")] = "unet",
    width: Annotated[int, Option("channels of the first level", ge=1)] = 16,
    depth: Annotated[int, Option("times the model halves its input", ge=1, le=6)] = 2,
    arguments: Annotated[
        tuple[str, ...],
        Option("further parameters of the model as name=value, with values in JSON: size=tiny", advanced=True),
    ] = (),
    freeze: Annotated[
        tuple[str, ...], Option("starts of the names of parameters that stay as they are: encoder.", advanced=True)
    ] = (),
    lora: Annotated[
        int,
        Option(
            "rank of the change that frozen layers learn, through peft (eopipe[lora]); 0 for none", ge=0, advanced=True
        ),
    ] = 0,
    epochs: Annotated[int, Option("passes over the training chips", ge=1)] = 10,
    batch: Annotated[int, Option("chips of a step, over all processes", ge=1)] = 32,
    learning_rate: Annotated[float, Option("highest learning rate of AdamW", gt=0)] = 4e-3,
    schedule: Annotated[
        Literal["cosine", "linear", "polynomial", "step", "constant"], Option("how the learning rate goes on")
    ] = "cosine",
    weight_decay: Annotated[float, Option("decoupled weight decay", ge=0)] = 1e-2,
    warmup: Annotated[float, Option("share of the steps in which the learning rate rises", ge=0, le=1)] = 0.2,
    loss: Annotated[
        Literal["cross_entropy", "focal", "dice", "lovasz", "huber", "mse"] | None,
        Option(
            "what is made small: cross_entropy if not given, or huber in a regression; dice and lovasz are means over "
            "chips, not pixels"
        ),
    ] = None,
    class_weights: Annotated[
        Literal["none", "balanced"], Option("balanced lets every class count alike in cross_entropy and focal")
    ] = "none",
    ema: Annotated[
        float,
        Option(
            "decay a step of the average of the weights that is judged and published; 0 for none",
            ge=0,
            lt=1,
            advanced=True,
        ),
    ] = 0.0,
    patience: Annotated[
        int, Option("epochs without a better val score to stop after, with the best epoch's weights; 0: never", ge=0)
    ] = 0,
    augment: Annotated[
        tuple[Literal["none", "symmetries", "brightness", "haze", "bands"], ...],
        Option("change training chips: turn them, change their light, veil them with haze, drop bands; or none"),
    ] = ("symmetries",),
    shuffle: Annotated[
        Literal["chips", "blocks"],
        Option("deal out all chips evenly, or read block by block: for data beyond memory", advanced=True),
    ] = "chips",
    window: Annotated[int, Option("blocks that are mixed at a time", ge=1, advanced=True)] = 16,
    block: Annotated[int, Option("edge in pixels of what is read and kept at a time", ge=1, advanced=True)] = 1024,
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"], Option("bf16 and fp16 compute with autocast, fp16 with a loss scale")
    ] = "fp32",
    seed: Annotated[int, Option("seed of the weights, the order and the augmentation", ge=0)] = 0,
    processes: Annotated[int, Option("processes on a node; plain DDP sums in their order", ge=1)] = 1,
    nodes: Annotated[
        str, Option("nodes that train together: 2, or the fewest and the most of those that come and go: 1:4")
    ] = "1",
    threads: Annotated[int, Option("threads of a process; more change the order of sums", ge=1, advanced=True)] = 1,
    deterministic: Annotated[
        bool, Option("the same weights whatever the number of processes: shards summed in a fixed order")
    ] = False,
    shards: Annotated[
        int, Option("parts of a batch in deterministic mode; at least the processes", ge=1, advanced=True)
    ] = 4,
    strategy: Annotated[
        Literal["ddp", "fsdp"], Option("whole weights in each process, or FSDP2: parts of them", advanced=True)
    ] = "ddp",
    accumulate: Annotated[int, Option("passes of a step, each over a part of the batch", ge=1, advanced=True)] = 1,
    clip: Annotated[float | None, Option("largest norm of a step's gradient", gt=0)] = None,
    compile: Annotated[bool, Option("compile the model; without a compiler it runs as it is", advanced=True)] = False,  # noqa: A002
    channels_last: Annotated[bool, Option("images with channels innermost in memory", advanced=True)] = False,
    recompute: Annotated[
        bool, Knob("save memory: compute activations twice instead of keeping them", advanced=True)
    ] = False,
    device: Annotated[Literal["auto", "cpu", "cuda"], Knob("where to compute")] = "auto",
    checkpoint_every: Annotated[int, Knob("steps between checkpoints", ge=1)] = 50,
    keep: Annotated[int, Knob("checkpoints to keep", ge=2, advanced=True)] = 2,
    cache_mb: Annotated[int, Knob("memory of a process for tiles, in MB", ge=16, advanced=True)] = 1024,
    workers: Annotated[
        int | None, Knob("processes that read chips for each process; not given: none on a CPU, 2 on a GPU", ge=0)
    ] = None,
    timeout_s: Annotated[
        float, Knob("seconds after which a silent worker counts as hung", gt=0, advanced=True)
    ] = 600.0,
    restarts: Annotated[int, Knob("times that lost or hung workers are started again", ge=0, advanced=True)] = 3,
    scratch: Annotated[
        str | None,
        Knob("folder on a node's own disk, as $TMPDIR, for a copy of the data while it trains", advanced=True),
    ] = None,
    state: Annotated[Path | None, Knob("folder of checkpoints; beside the model if not given", advanced=True)] = None,
    track: Annotated[
        tuple[Literal["tensorboard", "mlflow", "prometheus"], ...], Knob("what to show the training in, while it runs")
    ] = (),
    profile: Annotated[bool, Knob("write a trace of a few steps, and a table of what they do", advanced=True)] = False,
    views: Annotated[
        Path | None, Knob("folder of what track and profile write; beside the model if not given", advanced=True)
    ] = None,
    tell_every_s: Annotated[float, Knob("seconds between two lines about the progress", gt=0, advanced=True)] = 30.0,
) -> None:
    """Train a model on chips with torchrun and DDP: of pixels, of whole chips, or of values.

    Interrupted, it goes on from its newest checkpoint when the same command runs again, and ends with the
    weights of an undisturbed run. Raises PreemptedError after a signal, DivergedError for a loss that is
    not finite.
    """
    values = dict(locals())
    from eopipe.launch.srun import run_on_all_nodes
    from eopipe.training.run import run

    if not run_on_all_nodes(values):
        run(values)
