"""A trained model as a folder: weights in safetensors, everything else in JSON; nothing is unpickled.

Its `model.json` is a STAC Item (`mlm`) that names the weights, so that item alone is enough to use the model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.chips.chips import Normaliser
from eopipe.errors import BadInputError, IntegrityError
from eopipe.models import Architecture
from eopipe.publish import sha256, write_json
from eopipe.scenes.item import read_item, safe_href
from eopipe.stac.mlm import is_model, to_card, to_item
from eopipe.stac.static import scan
from eopipe.stac.write import ItemExtent

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS, CARD, HISTORY = "model.safetensors", "model.json", "history.json"


@dataclass(frozen=True)
class TrainedModel:
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

    def build(self, place: Path) -> "nn.Module":
        """The module with its weights, ready to predict; the place is what `model_item` takes."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        module, weights = self.architecture.build(), weights_file(place)
        try:
            module.load_state_dict(load_file(weights))
        except (SafetensorError, RuntimeError, OSError) as error:
            raise BadInputError(f"{weights} does not fit {CARD}: {error}") from error
        return module.eval()


def write_model_folder(
    folder: Path,
    trained: TrainedModel,
    weights: "dict[str, Tensor]",
    history: list[Any],
    settings: dict[str, Any],
    worlds: list[list[int]] | None = None,
    scope: ItemExtent | None = None,
) -> None:
    """Write a model folder, its item last; the same training gives the same bytes.

    `worlds` tells from which step on how many workers took them, where that changed; `scope` where and when the
    pixels lie that it learned from. Files that are there already are told as metadata.
    """
    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in sorted(weights.items())}, folder / WEIGHTS)
    write_json(folder / HISTORY, {"epochs": history} | ({"worlds": worlds} if worlds else {}))
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
    write_json(folder / CARD, to_item(card, folder, WEIGHTS, scope or ItemExtent()))


def model_item(place: Path) -> Path:
    """The item of a model: the file itself, that of a model folder, or the only one in a static STAC catalog.

    Raises BadInputError where there is none, or more than one.
    """
    if place.is_file():
        return place
    if (place / CARD).is_file():
        return place / CARD
    found = [path for path, item in scan(place) if is_model(item)] if (place / "catalog.json").is_file() else []
    if len(found) != 1:
        told = f"{len(found)} models" if found else f"no {CARD} and no STAC catalog of a model"
        raise BadInputError(f"{place} holds {told}; give the folder of one model, or its STAC Item")
    return found[0]


def read_model_card(place: Path) -> dict[str, Any]:
    """All that a model says of itself, by plain names."""
    path = model_item(place)
    return to_card(read_item(path), path)


def weights_file(place: Path) -> Path:
    """The file of the weights that a model's item names. Raises IntegrityError where it is another file by now."""
    path = model_item(place)
    assets = read_item(path)["assets"]
    named = [one for _, one in sorted(assets.items()) if "mlm:model" in one.get("roles", [])]
    if len(named) != 1:
        raise BadInputError(f"{path} names {len(named)} assets with the role mlm:model; it needs one, the weights")
    weights = path.parent / safe_href(named[0]["href"], str(path))
    if not weights.is_file():
        raise BadInputError(f"{path} names the weights {named[0]['href']}, which are not there; keep both together")
    if named[0].get("file:checksum", "") != f"1220{sha256(weights)}":
        raise IntegrityError(f"{weights} is not the file that {path.name} tells the checksum of; train the model again")
    return weights


def read_trained_model(place: Path) -> TrainedModel:
    """Read what a model says of itself; the place is what `model_item` takes."""
    card = read_model_card(place)
    bands, classes = tuple(card["bands"]), tuple(card["classes"])
    normaliser = Normaliser(tuple(card["mean"]), tuple(card["std"]))
    sizes = (len(bands), len(classes), card["width"], card["depth"])
    architecture = Architecture(card["architecture"], *sizes, bands, tuple(card["arguments"]))
    told = card["task"], tuple(card.get("target", ())), card.get("unit", "")
    return TrainedModel(architecture, bands, classes, normaliser, card["chip"], *told)
