"""Chips -> a trained model, through torchrun."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output


def train(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    chips: Annotated[Path, Input("samples of each split", format="application/json")],
    statistics: Annotated[Path, Input("what the bands measure in the training chips", format="application/json")],
    model: Annotated[Path, Output("model", "weights (safetensors), model.json, history.json", folder=True)],
    *,
    architecture: Annotated[str, Option("unet, or module:Class of your own")] = "unet",
    width: Annotated[int, Option("channels of the first level", ge=1)] = 16,
    depth: Annotated[int, Option("times the model halves its input", ge=1, le=6)] = 2,
    epochs: Annotated[int, Option("passes over the training chips", ge=1)] = 10,
    batch: Annotated[int, Option("chips of a step, over all processes", ge=1)] = 32,
    learning_rate: Annotated[float, Option("highest learning rate of AdamW", gt=0)] = 4e-3,
    weight_decay: Annotated[float, Option("decoupled weight decay", ge=0)] = 1e-2,
    warmup: Annotated[float, Option("share of the steps in which the learning rate rises", ge=0, le=1)] = 0.2,
    augment: Annotated[
        Literal["none", "symmetries"], Option("turn chips by the symmetries of the square")
    ] = "symmetries",
    precision: Annotated[Literal["fp32", "bf16"], Option("bf16 computes with autocast")] = "fp32",
    seed: Annotated[int, Option("seed of the weights, the order and the augmentation", ge=0)] = 0,
    processes: Annotated[int, Option("processes on the node; plain DDP sums in their order", ge=1)] = 1,
    threads: Annotated[int, Option("threads of a process; more change the order of sums", ge=1)] = 1,
    device: Annotated[Literal["auto", "cpu", "cuda"], Knob("where to compute")] = "auto",
    checkpoint_every: Annotated[int, Knob("steps between checkpoints", ge=1)] = 50,
    keep: Annotated[int, Knob("checkpoints to keep", ge=2)] = 2,
    cache_mb: Annotated[int, Knob("memory of a process for tiles, in MB", ge=16)] = 1024,
    timeout_s: Annotated[float, Knob("seconds after which a silent worker counts as hung", gt=0)] = 600.0,
    state: Annotated[Path | None, Knob("folder of checkpoints; beside the model if not given")] = None,
) -> None:
    """Train a segmentation model on chips with torchrun and DDP.

    Interrupted, it goes on from its newest checkpoint when the same command runs again, and ends with the
    weights of an undisturbed run. Raises PreemptedError after a signal, DivergedError for a loss that is
    not finite.
    """
    from eopipe.training.job import Settings
    from eopipe.training.run import Sources, run

    settings = Settings(
        architecture=architecture,
        width=width,
        depth=depth,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        warmup=warmup,
        augment=augment,
        precision=precision,
        seed=seed,
        processes=processes,
        threads=threads,
    )
    knobs = {"checkpoint_every": checkpoint_every, "keep": keep, "cache_mb": cache_mb}
    room = state or model.parent / f".{model.name}.state"
    sources = Sources(tiles, labels, chips, statistics)
    run(sources, model, settings, room, knobs | {"device": device, "timeout_s": timeout_s})
