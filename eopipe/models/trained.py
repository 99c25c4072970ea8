"""A trained model as a folder: weights in safetensors, everything else in JSON; nothing is unpickled."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError
from eopipe.models import Architecture
from eopipe.publish import read_json, write_json
from eopipe.samples.chips import Normaliser

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS, CARD, HISTORY = "model.safetensors", "model.json", "history.json"


@dataclass(frozen=True)
class Trained:
    """What a model needs to be used on tiles: architecture, band and class names, normalisation, chip, and its task.

    One of a regression has the name of what it measures for its class, the unit of that, and as `target` the mean and
    standard deviation of the labels that it learned from.
    """

    architecture: Architecture
    bands: tuple[str, ...]
    classes: tuple[str, ...]
    normaliser: Normaliser
    chip: int
    task: str = "segmentation"
    target: tuple[float, ...] = ()
    unit: str = ""

    def build(self, folder: Path) -> "nn.Module":
        """The module with its weights, ready to predict."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        module = self.architecture.build()
        try:
            module.load_state_dict(load_file(folder / WEIGHTS))
        except (SafetensorError, RuntimeError, OSError) as error:
            raise BadInputError(f"{folder / WEIGHTS} does not fit {CARD}: {error}") from error
        return module.eval()


def write_trained(
    folder: Path,
    trained: Trained,
    weights: "dict[str, Tensor]",
    history: list[Any],
    settings: dict[str, Any],
    worlds: list[list[int]] | None = None,
) -> None:
    """Write a model folder; the same training gives the same bytes.

    `worlds` tells from which step on how many workers took them, where that changed.
    """
    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in sorted(weights.items())}, folder / WEIGHTS)
    architecture = trained.architecture
    card = {
        "architecture": architecture.name,
        "width": architecture.width,
        "depth": architecture.depth,
        "arguments": architecture.arguments,
        "bands": trained.bands,
        "classes": trained.classes,
        "mean": trained.normaliser.mean,
        "std": trained.normaliser.std,
        "chip": trained.chip,
        "parameters": sum(v.numel() for v in weights.values()),
        "settings": settings,
        "task": trained.task,
    }
    if trained.task == "regression":
        card |= {"target": trained.target, "unit": trained.unit}
    write_json(folder / CARD, card)
    write_json(folder / HISTORY, {"epochs": history} | ({"worlds": worlds} if worlds else {}))


def read_trained(folder: Path) -> Trained:
    """Read what a model folder says of itself."""
    card = read_json(folder / CARD)
    try:
        bands, classes = tuple(card["bands"]), tuple(card["classes"])
        normaliser = Normaliser(tuple(card["mean"]), tuple(card["std"]))
        sizes = (len(bands), len(classes), card["width"], card["depth"])
        architecture = Architecture(card["architecture"], *sizes, bands, tuple(card.get("arguments", ())))
        told = card.get("task", "segmentation"), tuple(card.get("target", ())), card.get("unit", "")
        return Trained(architecture, bands, classes, normaliser, card["chip"], *told)
    except KeyError as error:
        raise BadInputError(f"{folder / CARD} lacks {error}; train makes a whole one") from error
