"""Chips -> a trained model, through torchrun."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output
from eopipe.train_options import TrainKnobs, TrainOptions

# 2: model.json is a STAC Item. 3: it describes the tiles of the training. 4: classes with descriptions, and the
# framework in the metadata of the weights. 5: the head of the built-in models sees the spectrum. 6: length in steps.
# 7: random crops. 8: passes over the labelled pixels. 10: months, sensors and ranges of values of the training.
# 11: where a chip has no data, its nearest valid pixel is repeated; the model's item says so.
# 12: linear models are fitted, and see texture. 13: an epoch with crops has the pixels of the chips.
REVISION = 13
NEEDS = ("plausible_training", "validation_places")


def train(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store for all scenes, or one per scene", folder=True)],
    chips: Annotated[Path, Input("split file: chips of the train, val and test splits", format="application/json")],
    statistics: Annotated[Path, Input("band statistics of the training chips", format="application/json")],
    model: Annotated[
        Path, Output("model", "model folder: weights (safetensors), STAC Item, history and metrics (JSON)", folder=True)
    ],
    *,
    init: Annotated[
        Path | None,
        Input(
            "fine-tuning: model folder of eopipe to initialise the weights from; for other classes the head is new",
            folder=True,
            user=True,
        ),
    ] = None,
    model_files: Annotated[
        tuple[Path, ...],
        Input(
            "code of a custom model: modules and packages, and files that its arguments name (default: found by "
            "architecture and arguments, beside the config)",
            mixed=True,
            user=True,
            derived="eopipe.models.model_files:find_model_files",
        ),
    ] = (),
    continued: Annotated[
        Path | None,
        Input("model folder of the same training with --until: its checkpoint is where this one starts", folder=True),
    ] = None,
    promoted: Annotated[
        Path | None,
        Input(
            "file with the names of the folders that may continue, as {promoted: [names]}: a folder --continued that "
            "it does not name is copied, without its checkpoint, and no step is taken",
            format="application/json",
        ),
    ] = None,
    until: Annotated[
        float | None,
        Option(
            "share of the steps after which the training pauses, at the next validation; the model folder then has "
            "the checkpoint from which another training continues",
            of_job=True,
            gt=0,
            lt=1,
        ),
    ] = None,
    options: TrainOptions,
    knobs: TrainKnobs,
) -> None:
    """Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.

    Interrupted, it resumes from its newest checkpoint when the same command runs again, and ends with the weights of
    an undisturbed run; so does one that pauses and is continued. Raises PreemptedError after a signal, DivergedError
    for a loss that is not finite.
    """
    from eopipe.training.run import run

    inputs = {"tiles": tiles, "labels": labels, "chips": chips, "statistics": statistics}
    inputs |= {"init": init, "model_files": model_files}
    inputs |= {"continued": continued, "promoted": promoted}
    run(inputs | {"model": model, "until": until} | vars(options) | vars(knobs))
