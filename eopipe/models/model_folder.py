"""A trained model as a folder: weights in safetensors, everything else in JSON; nothing is unpickled.

Its `model.json` is a STAC Item with the MLM extension that links the weights: the item is all that a user needs.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from eopipe.chips.chips import FILLS, NEAREST, ZERO, Normaliser
from eopipe.contract import stage
from eopipe.errors import BadInputError, IntegrityError
from eopipe.models import EARLIER_DEFAULTS, Architecture, with_default
from eopipe.models.input_check import TileProperties
from eopipe.models.model_files import ModelFile, module_of
from eopipe.ports import annotated
from eopipe.publish import sha256
from eopipe.scenes.item import read_item, safe_href
from eopipe.stac.mlm import ONNX, is_model, to_card, to_item
from eopipe.stac.read import scan
from eopipe.stac.write import ItemExtent
from eopipe.tasks import TASKS
from eopipe.text_files import write_json
from eopipe.train_options import PIXEL_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

WEIGHTS, CARD, HISTORY = "model.safetensors", "model.json", "history.json"
# The metrics file of the run that trained the model, in the copy that another run maps with.
TEST_SCORES = "test-scores.json"
# Options of a training that a model's item has too, within the same limits.
OF_TRAINING = ("architecture", "width", "depth", "arguments", "weights_bands", "min_share")
# Members of an ensemble, each of which takes the memory and the time of a model.
MOST_MEMBERS = 64


@dataclass(frozen=True)
class TrainedModel:
    """All that inference needs: architecture, band and class names, normalisation, edge of a chip in pixels, and task.

    For a regression `classes` is the name of the measured quantity, `unit` its unit, and `target` the mean and standard
    deviation of the training labels. For several labels for each chip `min_share` is the share of the labelled pixels
    that makes a class one of them. `trained_on` describes the tiles of the training; models of older versions have no
    such description. `window` is the only edge in pixels of images that the model takes, 0 where it takes others too.
    `members` is the number of models of an ensemble, which are built as one. `fill` is what the model sees where pixels
    are not valid (`eopipe.chips.chips`): of models of older versions zeros. Where members differ `kinds` has the
    architecture of each, and `architecture` is the custom one among them, or the first.
    """

    architecture: Architecture
    bands: tuple[str, ...]
    classes: tuple[str, ...]
    normaliser: Normaliser
    chip: int
    task: str = "segmentation"
    target: tuple[float, ...] = ()
    unit: str = ""
    trained_on: TileProperties | None = None
    min_share: float = 0.0
    window: int = 0
    members: int = 1
    fill: str = NEAREST
    kinds: tuple[Architecture, ...] = ()

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """The architectures of its members, or its own; each once where all have the same."""
        return tuple(self.architecture if module_of(kind.name) else kind for kind in self.kinds) or (self.architecture,)

    @property
    def factor(self) -> int:
        """Height and width of the input must be multiples of this."""
        return math.lcm(*(architecture.factor for architecture in self.architectures))

    def build(self, path: Path) -> "nn.Module":
        """The module with its weights in evaluation mode; the path is one that `model_item` accepts.

        A built-in model is compared with its weights before any memory is allocated for it.
        """
        weights = read_weights(path)
        try:
            if not module_of(self.architecture.name):
                self._assembled(Architecture.build_without_memory).load_state_dict(weights, assign=True)
            module = self._assembled(Architecture.build)
            module.load_state_dict(weights)
        except RuntimeError as error:
            raise BadInputError(
                f"the weights of {path} do not fit its {CARD}: {' '.join(str(error).split())[:300]}"
            ) from error
        return module.eval()

    def _assembled(self, build: "Callable[[Architecture], nn.Module]") -> "nn.Module":
        """What `build` gives for the architecture, or the ensemble of that for each member."""
        from eopipe.models.networks import Ensemble

        if self.members == 1:
            return build(self.architecture)
        of_members = self.architectures if self.kinds else self.architectures * self.members
        return Ensemble([build(architecture) for architecture in of_members], self.task)


def write_model_folder(
    folder: Path,
    trained: TrainedModel,
    weights: "dict[str, Tensor]",
    history: list[Any],
    settings: dict[str, Any],
    worlds: list[list[int]] | None = None,
    extent: ItemExtent | None = None,
    software: dict[str, str] | None = None,
) -> None:
    """Write a model folder, its item last; the same training gives the same bytes.

    `worlds` lists (first step, world size) where the world size changed; `extent` is the area and time of the training
    pixels; `software` has the versions of the distributions that a custom model uses, whose files are in the folder
    already. Files that the folder holds become assets of the item.
    """
    from safetensors.torch import save_file

    # Loaders, such as the one in transformers, refuse files that name no framework.
    tensors = {k: v.contiguous() for k, v in sorted(weights.items())}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / HISTORY, {"validations": history} | ({"worlds": worlds} if worlds else {}))
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
    card |= {"files": {file.name: file.sha256 for file in architecture.files}} if architecture.files else {}
    card |= {"weights_bands": architecture.weights_bands} if architecture.weights_bands else {}
    card |= {"software": software} if software else {}
    card |= {"window": trained.window} if trained.window else {}
    card |= {"members": trained.members} if trained.members > 1 else {}
    kinds = [
        {"architecture": kind.name, "width": kind.width, "depth": kind.depth, "arguments": kind.arguments}
        for kind in trained.kinds
    ]
    card |= {"kinds": kinds} if kinds else {}
    card |= {"fill": trained.fill} if trained.fill != ZERO else {}
    card |= {name: getattr(trained, name) for name in TASKS[trained.task].model_fields}
    if trained.trained_on:
        card["trained_on"] = asdict(trained.trained_on)
    write_json(folder / CARD, to_item(card, folder, WEIGHTS, extent or ItemExtent()))


def model_item(path: Path) -> Path:
    """The STAC Item of a model: the file itself, the item in a model folder, or the only one of a static STAC catalog.

    Raises BadInputError where there is none, or more than one.
    """
    if path.is_file():
        return path
    if (path / CARD).is_file():
        return path / CARD
    items = [file for file, item in scan(path) if is_model(item)] if (path / "catalog.json").is_file() else []
    if len(items) != 1:
        contents = f"{len(items)} models" if items else f"no {CARD} and no STAC catalog of a model"
        raise BadInputError(f"{path} contains {contents}; give the folder of one model, or its STAC Item")
    return items[0]


def model_id(path: Path) -> str:
    """The id of a model's STAC Item, which has a part of the weights' digest."""
    return str(read_item(model_item(path))["id"])


def read_model_card(path: Path) -> dict[str, Any]:
    """The metadata of a model by plain names; the path is one that `model_item` accepts."""
    item = model_item(path)
    return to_card(read_item(item), item)


def weights_file(path: Path) -> Path:
    """The weights that a model's item links. Raises IntegrityError where the file has another checksum."""
    item = model_item(path)
    listed = sorted(read_item(item)["assets"].items())
    models = [asset for _, asset in listed if "mlm:model" in (asset.get("roles") or [])]
    assets = [asset for asset in models if asset.get("type") != ONNX]
    if len(assets) != 1:
        raise BadInputError(
            f"{item} has {len(assets)} assets with the role mlm:model; it needs exactly one, the weights"
        )
    weights = item.parent / safe_href(assets[0]["href"], str(item))
    if not weights.is_file():
        raise BadInputError(f"{item} links the weights {assets[0]['href']}, which do not exist; keep both together")
    if assets[0].get("file:checksum", "") != f"1220{sha256(weights)}":
        raise IntegrityError(f"{weights} does not have the checksum that {item.name} states; train the model again")
    return weights


def read_weights(path: Path) -> "dict[str, Tensor]":
    """The weights of a model, without its module. Raises BadInputError for a file that is not safetensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    weights = weights_file(path)
    try:
        return load_file(weights)
    except (SafetensorError, OSError) as error:
        raise BadInputError(f"{weights} is not safetensors: {error}") from error


def networks_of(card: dict[str, Any]) -> list[int]:
    """The numbers of the members that are networks, of a model whose members are of several kinds."""
    return [n for n, kind in enumerate(card.get("kinds", ())) if kind["architecture"] not in PIXEL_MODELS]


def read_network(path: Path) -> "dict[str, Tensor]":
    """The weights of a network, which may be averaged with models of pixels."""
    prefix = "".join(f"members.{number}." for number in networks_of(read_model_card(path))[:1])
    return {name.removeprefix(prefix): value for name, value in read_weights(path).items() if name.startswith(prefix)}


def _check_values(card: dict[str, Any], path: Path) -> None:
    """Raise BadInputError for values that no training of eopipe writes: of another type, or beyond the limits."""
    from pydantic import Field, FiniteFloat, PositiveFloat, PositiveInt, TypeAdapter, ValidationError

    names, numbers = tuple[str, ...], tuple[FiniteFloat, ...]
    kinds: dict[str, Any] = {"bands": names, "classes": names, "mean": numbers, "std": tuple[PositiveFloat, ...]}
    kinds |= {"chip": PositiveInt, "window": PositiveInt, "target": numbers, "unit": str, "files": dict[str, str]}
    kinds["fill"] = Literal[*FILLS]
    kinds["members"] = Annotated[int, Field(ge=1, le=MOST_MEMBERS)]
    # The limits of the options of a training.
    kinds |= {port.name: annotated(port) for port in stage("train").options if port.name in OF_TRAINING}
    mistakes = []
    for described in (card, *card.get("kinds", ())):
        for name in kinds.keys() & described.keys():
            try:
                TypeAdapter(kinds[name]).validate_python(described[name])
            except ValidationError as error:
                value = repr(error.errors()[0]["input"])
                mistakes.append(f"{name} has {value[:40]}: {error.errors()[0]['msg'].lower()}")
    if card.get("kinds") and len(card["kinds"]) != card.get("members"):
        mistakes.append(f"it has {len(card['kinds'])} kinds for {card.get('members')} members")
    if not mistakes and len(card["mean"]) != len(card["bands"]):
        mistakes.append(f"it has {len(card['mean'])} means for {len(card['bands'])} bands")
    if mistakes:
        raise BadInputError(f"{path} does not describe a model of eopipe: {'; '.join(sorted(mistakes))}")


def read_trained_model(path: Path, allow_code: str | None = None) -> TrainedModel:
    """Read the metadata of a model; the path is one that `model_item` accepts. Nothing is imported.

    `allow_code` names the custom architecture whose code may run when the model is built.
    """
    card, folder = read_model_card(path), model_item(path).parent
    _check_values(card, path)
    bands, classes = tuple(card["bands"]), tuple(card["classes"])
    normaliser = Normaliser(tuple(card["mean"]), tuple(card["std"]))
    files = tuple(
        ModelFile(name, digest, (folder / safe_href(name, str(folder))).absolute())
        for name, digest in sorted(card.get("files", {}).items())
    )
    weights_bands = tuple(card.get("weights_bands", ()))
    architecture = replace(_architecture(card, bands, len(classes)), files=files, weights_bands=weights_bands)
    architecture = architecture.with_permission(allow_code)
    of_members = tuple(_architecture(kind, bands, len(classes)) for kind in card.get("kinds", ()))
    target, unit = tuple(card.get("target", ())), card.get("unit", "")
    trained_on = TileProperties.read(card["trained_on"], path) if "trained_on" in card else None
    task, min_share = (card["task"], target, unit, trained_on), card.get("min_share", 0.0)
    of_windows = card.get("window", 0), card.get("members", 1), card.get("fill", ZERO)
    return TrainedModel(
        architecture, bands, classes, normaliser, card["chip"], *task, min_share, *of_windows, of_members
    )


def _architecture(card: dict[str, Any], bands: tuple[str, ...], classes: int) -> Architecture:
    """A built-in model, or a custom one without its files, by plain names."""
    arguments = with_default(card["architecture"], tuple(card["arguments"]), EARLIER_DEFAULTS)
    return Architecture(card["architecture"], len(bands), classes, card["width"], card["depth"], bands, arguments)
