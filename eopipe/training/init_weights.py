"""What a training begins with: a model that fits, maybe with the weights of another; nothing is ever unpickled."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.checkpoints.identity import differences
from eopipe.errors import BadInputError, EopipeError, RefusedError, UsageError
from eopipe.models import Architecture
from eopipe.models.model_folder import CARD, read_trained_model
from eopipe.publish import verify

if TYPE_CHECKING:
    from torch import nn


# Formats that may run code when they are read: pickles, and the metadata of torch.distributed.checkpoint.
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".distcp", ".metadata", ".joblib", ".npy")
# What an error tells where a model can only be tried on a GPU.
ELSEWHERE = re.compile(r"cuda|gpu|triton|device|backend", re.IGNORECASE)


def check_source(folder: Path) -> None:
    """Check that something to begin with is a model of eopipe, before anything of it is read.

    Raises RefusedError for what would have to be unpickled, BadInputError for another folder, IntegrityError for a
    damaged one.
    """
    found = _pickled(folder)
    if found:
        raise RefusedError(
            f"{found} is a pickle, which runs code when it is read, so it is not opened; "
            "give train.init the folder of a model that eopipe trained (safetensors and JSON)"
        )
    if not (folder / CARD).is_file():
        raise BadInputError(f"{folder} has no {CARD}; train.init takes the folder of a model that eopipe trained")
    verify(folder)


def check_initial(folder: Path, architecture: Architecture, bands: tuple[str, ...]) -> None:
    """Check that a model to begin with fits, by its JSON only. Raises BadInputError for another one or other bands."""
    its = read_trained_model(folder)
    wrong = list(differences(_needs(architecture, bands), _needs(its.architecture, its.bands)))
    if wrong:
        raise BadInputError(f"{folder} does not fit this training: {'; '.join(wrong)}; set train to the same")


def _needs(architecture: Architecture, bands: tuple[str, ...]) -> dict[str, object]:
    names = ("name", "classes", "width", "depth", "arguments")
    return {"bands": bands} | {f"architecture.{name}": getattr(architecture, name) for name in names}


def _pickled(path: Path) -> Path | None:
    """A file that is a pickle by its name or first bytes: the path itself or one in this folder."""
    there = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
    return next((p for p in there if p.is_file() and (_named(p) or _begins(p))), None)


def _named(path: Path) -> bool:
    return path.suffix in PICKLED or path.name in PICKLED


def _begins(path: Path) -> bool:
    """Whether a file begins as a pickle (protocol 2 to 5) or as the zip that torch.save writes."""
    with path.open("rb") as file:
        first = file.read(4)
    return first == b"PK\x03\x04" or (first[:1] == b"\x80" and first[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"))


def rehearse(module: "nn.Module", architecture: Architecture, chip: int, task: str) -> None:
    """Send an empty chip of `chip` pixels a side through a model, before any worker starts.

    Raises UsageError where the model does not take the bands or does not give the classes; what it raises itself.
    """
    import torch

    from eopipe.models.build import error_summary

    wanted = (1, architecture.classes, chip, chip)
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            found = tuple(module.eval()(torch.zeros(1, architecture.bands, chip, chip)).shape)
    except EopipeError:
        raise
    except Exception as error:
        if ELSEWHERE.search(str(error)):
            return
        what, why = f"a chip of {architecture.bands} bands and {chip} x {chip} pixels", error_summary(error)
        raise UsageError(f"model {architecture.name} fails with {what}: {why}; see train.arguments") from error
    # The answer for a chip is the mean over its pixels, so any number of them will do.
    given = (*found[:2], chip, chip) if task == "classification" else found
    if given != wanted:
        what = f"gives {found} instead of {wanted} (sample, class, row, column)"
        raise UsageError(f"model {architecture.name} {what}; see train.arguments")
