"""Checks of the model before any worker starts: the folder to initialise it from, and a dry run of one empty chip."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.checkpoints.checkpoint import differences
from eopipe.errors import BadInputError, EopipeError, ModelCodeError, RefusedError, UsageError, model_code_error
from eopipe.models import Architecture
from eopipe.models.model_folder import CARD, networks_of, read_model_card, read_trained_model
from eopipe.publish import verify
from eopipe.tasks import TASKS

if TYPE_CHECKING:
    from torch import nn

# Formats that may run code when they are read: pickles, and the metadata of torch.distributed.checkpoint.
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".distcp", ".metadata", ".joblib", ".npy")
# In the error of a model that runs on a GPU only.
NEEDS_GPU = re.compile(r"cuda|gpu|triton|device|backend", re.IGNORECASE)


def check_init_folder(folder: Path) -> None:
    """Check that `init` is a model folder of eopipe, before anything of it is read.

    Raises RefusedError for what would have to be unpickled, BadInputError for another folder and for an ensemble,
    IntegrityError for a damaged one.
    """
    pickle = _find_pickle(folder)
    if pickle:
        raise RefusedError(
            f"{pickle} is a pickle, which runs code when it is read, so it is not opened; "
            "give train.init the folder of a model that eopipe trained (safetensors and JSON)"
        )
    if not (folder / CARD).is_file():
        raise BadInputError(f"{folder} has no {CARD}; train.init takes the folder of a model that eopipe trained")
    verify(folder)
    card = read_model_card(folder)
    if (members := card.get("members", 1)) > 1 and len(networks_of(card)) != 1:
        raise BadInputError(
            f"{folder} is an ensemble of {members} models, and a training starts from one model; give train.init the "
            "model folder of one of its members"
        )


def check_init_fits(folder: Path, architecture: Architecture, bands: tuple[str, ...]) -> None:
    """Check by its JSON that the model of `init` fits. Raises BadInputError for another model or other bands.

    The classes may be others: then `head_tensors` are new.
    """
    init = read_trained_model(folder)
    rows = list(differences(_requirements(architecture, bands), _requirements(init.architecture, init.bands)))
    if rows:
        raise BadInputError(f"{folder} does not fit this training: {'; '.join(rows)}; set the same values in train")


def head_tensors(architecture: Architecture) -> tuple[str, ...]:
    """Names of the tensors of a model whose shape follows the number of classes."""
    shapes, wider = (
        {name: tensor.shape for name, tensor in replace(architecture, classes=count).build().state_dict().items()}
        for count in (architecture.classes, architecture.classes + 1)
    )
    return tuple(name for name, shape in shapes.items() if wider.get(name) != shape)


def _requirements(architecture: Architecture, bands: tuple[str, ...]) -> dict[str, object]:
    names = ("name", "width", "depth", "arguments")
    return {"bands": bands} | {f"architecture.{name}": getattr(architecture, name) for name in names}


def _find_pickle(path: Path) -> Path | None:
    """A file that is a pickle by its name or first bytes: the path itself or one in this folder."""
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
    return next((file for file in files if file.is_file() and _is_pickle(file)), None)


def _is_pickle(path: Path) -> bool:
    """Whether a file is named as a pickle, or begins as one (protocol 2 to 5) or as the zip that torch.save writes."""
    if path.suffix in PICKLED or path.name in PICKLED:
        return True
    with path.open("rb") as file:
        header = file.read(4)
    return header == b"PK\x03\x04" or (header[:1] == b"\x80" and header[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"))


def dry_run(module: "nn.Module", architecture: Architecture, chip: int, task: str) -> str:
    """Send an empty chip of `chip` pixels a side through a model; a warning where its map is stretched to the chip.

    Raises UsageError where the model does not take the bands or does not give the classes, and what it raises itself.
    """
    import torch

    from eopipe.models.build import WrappedModel, error_summary

    name, forward = architecture.name, module.logits if isinstance(module, WrappedModel) else module
    module.eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            batch, classes, *edges = forward(torch.zeros(1, architecture.bands, chip, chip)).shape
    except EopipeError:
        raise
    except Exception as error:
        if NEEDS_GPU.search(str(error)):
            return ""
        chips, in_model = f"a chip of {architecture.bands} bands and {chip} x {chip} pixels", model_code_error(error)
        sentence = f"model {name} fails with {chips}: {in_model or error_summary(error)}"
        frames = in_model.frames if in_model else ()
        raise ModelCodeError(sentence + _first_layer(module, architecture), frames) from error
    # Smaller maps are resized to the chip, and the output for a chip is the mean over its pixels.
    is_of_chip = not edges and not TASKS[task].is_of_chips
    shape, expected = (batch, classes, *((1, 1) if is_of_chip else (chip, chip))), (1, architecture.classes, chip, chip)
    if shape != expected:
        last = f"its last layer needs {architecture.classes} channels, which its parameter `classes` would say"
        cure = "one output for a whole chip is train.task classification or multilabel" if is_of_chip else last
        raise UsageError(f"model {name} gives {shape} instead of {expected} (batch, class, row, column); {cure}")
    if TASKS[task].is_of_chips or not any(chip % edge for edge in edges):
        return ""
    return (
        f"model {name} gives maps of {edges[0]} x {edges[1]} pixels for chips of {chip} x {chip}, which are stretched "
        "to the chip, so that its classes are displaced; give its convolutions their padding (padding=kernel // 2)"
    )


def _first_layer(module: "nn.Module", architecture: Architecture) -> str:
    """What to do where the first convolution takes another number of bands."""
    from eopipe.models.build import first_convolution

    first = first_convolution(module)
    if not first or first[1].in_channels == architecture.bands:
        return ""
    return (
        f"; its first layer takes {first[1].in_channels} channels: make it by the parameter `bands`, or name the bands "
        "that its weights are made for, in their order, in train.weights_bands, such as [red, green, blue]"
    )


def fixed_window(module: "nn.Module", architecture: Architecture, chip: int) -> int:
    """The only edge in pixels of images that a model takes; 0 where it takes others too, or runs on a GPU only.

    A model says it by its attribute `window`, or takes an image of `chip` pixels a side and none that is twice as wide.
    """
    import torch

    if (window := getattr(module, "window", None)) is not None or getattr(module, "reach", None) is not None:
        return int(window or 0)
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        for width in (chip, 2 * chip):
            try:
                module.eval()(torch.zeros(1, architecture.bands, chip, width))
            except Exception:  # noqa: BLE001 - the code of a user may raise anything
                return 0 if width == chip else chip
    return 0
