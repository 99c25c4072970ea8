"""A trained model as a STAC Item with the MLM extension, which contains all that using the model needs.

In Python it is a flat card; `to_item` and `to_card` convert between both without loss. The fields of the extension are
written as they are: pystac's own classes for it belong to another version with every release.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from eopipe.documents import Number, typed_mistakes
from eopipe.errors import BadInputError
from eopipe.publish import files, sha256
from eopipe.scenes.item import Item
from eopipe.stac.write import FILE, MLM, RASTER, ItemExtent, add_raster_bands, asset, class_objects, document, slug
from eopipe.tasks import SEGMENTATION, TASKS

if TYPE_CHECKING:
    import pystac

BY_MLM_TASK = {task.mlm[0]: task for task in (*TASKS.values(), SEGMENTATION)}
SAFETENSORS = "application/vnd.safetensors"
ONNX = "application/onnx"
MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".py": "text/x-python",
    ".safetensors": SAFETENSORS,
}
# Keys of a card that are not hyper-parameters of the training, but needed to build the module; and those of its task.
MODULE = ("width", "depth", "arguments")
TASK_FIELDS = [name for task in TASKS.values() for name in task.model_fields if name != "unit"]
# What MLM has no field for, by the key of the card: pixel size, units and processing levels of the tiles that a model
# was trained on; the number of models of an ensemble, and the architecture of each where they differ; what the model
# sees where pixels are not valid, where that is not zero.
OWN_FIELDS = {key: f"eopipe:{key}" for key in ("trained_on", "members", "kinds", "fill")}
INVALID_PIXELS = {
    "zero": "zero where a pixel is not valid",
    "nearest": "a pixel that is not valid has the values of the nearest valid one of the image (the larger of the two "
    "distances in rows and columns; among equals the one above, then the one on the left), and zeros where none is",
}
# Keys that only a custom model may have: its files with their digests, the bands of its weights, its libraries, and the
# edge of the only windows that it takes.
CUSTOM = ("files", "weights_bands", "software", "window")
# What the value of a key of a card can be.
Size = Annotated[int, Field(strict=True, gt=0, lt=1 << 31)]
StrictText = Annotated[str, Field(strict=True)]
Texts = Annotated[list[StrictText], Field(strict=True)]
TYPES: dict[str, Any] = {
    "architecture": StrictText,
    **dict.fromkeys(("bands", "classes", "arguments", "weights_bands"), Texts),
    **dict.fromkeys(("mean", "std", "target"), Annotated[list[Number], Field(strict=True)]),
    **dict.fromkeys(("width", "depth", "chip", "window", "members"), Size),
    **dict.fromkeys(("files", "software"), Annotated[dict[Any, StrictText], Field(strict=True)]),
    **dict.fromkeys(("unit", "fill"), StrictText),
    "min_share": Annotated[Number, Field(gt=0, le=1)],
}


def to_item(card: dict[str, Any], folder: Path, weights: str, extent: ItemExtent) -> Item:
    """Describe a model and the files in its folder, one of which is the weights."""
    module = {key: card[key] for key in (*MODULE, *CUSTOM, *TASK_FIELDS) if key in card}
    item = extent.item(
        f"eopipe-{slug(card['architecture'], 'model')}-{sha256(folder / weights)[:12]}",
        (MLM, FILE, RASTER),
        {
            "description": f"{_kind(card)} of the task {card['task']}, trained with eopipe: "
            f"{', '.join(card['classes'])}.",
            "mlm:name": f"eopipe {slug(card['architecture'], 'model')} {card['task']}",
            "mlm:architecture": card["architecture"],
            "mlm:tasks": [TASKS[card["task"]].mlm[0]],
            "mlm:framework": "PyTorch",
            "mlm:framework_version": _three_numbers(version("torch")),
            "mlm:total_parameters": card["parameters"],
            "mlm:input": [_input(card)],
            "mlm:output": [_output(card)],
            "mlm:hyperparameters": card["settings"] | {"model": module},
        },
    )
    item.properties |= {field: card[key] for key, field in OWN_FIELDS.items() if key in card}
    item.add_asset("model", _weights(folder / weights, card["bands"]))
    for file in files(folder):
        path = file.relative_to(folder).as_posix()
        if path != weights:
            item.add_asset(path, _file(path, file, is_part=path in card.get("files", {})))
    return document(item)


def _kind(card: dict[str, Any]) -> str:
    """What a description calls the model."""
    if "members" not in card:
        return "Model"
    kinds = f": {', '.join(kind['architecture'] for kind in card['kinds'])}" if "kinds" in card else ""
    difference = "of several kinds" if kinds else "with different seeds"
    return f"Ensemble of {card['members']} models {difference}{kinds}, whose predictions are averaged,"


def _file(path: str, file: Path, *, is_part: bool) -> "pystac.Asset":
    """A file of the training; or a part of a custom model: its code, or a file that its arguments name."""
    media_type = MEDIA_TYPES.get(file.suffix, "application/octet-stream")
    if not is_part:
        # An ensemble has the files of each member too, as members/0/history.json.
        member = re.match(r"members/(\d+)/", path)
        title = f"{file.stem} of the training" + (f" of member {member[1]}" if member else "")
        return asset(f"./{path}", media_type, title, ("metadata",), file)
    is_code = file.suffix == ".py"
    roles, title = (("mlm:source_code", "code"), "code of the model") if is_code else (("data",), "file of the model")
    return asset(f"./{path}", media_type, f"{file.name}, {title}", roles, file)


def _three_numbers(text: str) -> str:
    """The first three numbers of a version, without the label of the build."""
    return ".".join((*re.findall(r"\d+", text.partition("+")[0]), "0", "0")[:3])


def _input(card: dict[str, Any]) -> dict[str, Any]:
    scaling = [{"type": "z-score", "mean": m, "stddev": s} for m, s in zip(card["mean"], card["std"], strict=True)]
    return {
        "name": "image",
        "description": "Physical values of the bands, in this order (stored * scale + offset), scaled band by band; "
        f"{INVALID_PIXELS[card.get('fill', 'zero')]}. Bands are found by their names.",
        "bands": list(card["bands"]),
        "input": {
            "shape": [-1, len(card["bands"]), card["chip"], card["chip"]],
            "dim_order": ["batch", "bands", "height", "width"],
            "data_type": "float32",
        },
        "value_scaling": scaling,
    }


def _output(card: dict[str, Any]) -> dict[str, Any]:
    task = TASKS[card["task"]]
    name, axes = task.mlm[0], [*task.mlm[1]]
    shape = [-1, len(card["classes"]), card["chip"], card["chip"]][: len(axes)]
    output = {"tasks": [name], "result": {"shape": shape, "dim_order": axes, "data_type": "float32"}}
    if not task.has_classes:
        return output | {"name": card["classes"][0], "unit": card["unit"], "classification:classes": []}
    # The extension refers to version 1.1 of the classification extension, which requires descriptions.
    classes = class_objects(card["classes"], "description")
    return output | {"name": "classes", "classification:classes": classes}


def _class_name(entry: dict[str, Any]) -> str:
    """The name of a class as the user wrote it; items of earlier versions have it as title."""
    return str(entry.get("title", entry.get("description", entry["name"])))


def _weights(file: Path, bands: Sequence[str]) -> "pystac.Asset":
    weights = asset(f"./{file.name}", SAFETENSORS, "weights of the model", ("mlm:model", "mlm:weights", "data"), file)
    weights.extra_fields["mlm:artifact_type"] = "safetensors.torch.save_file"
    # The extension requires the bands of the input in another extension too; STAC 1.1 forbids its own bands there.
    add_raster_bands(weights, [{"name": name} for name in bands])
    return weights


def onnx_asset(file: Path, bands: Sequence[str]) -> "pystac.Asset":
    """The same model in ONNX format; it has the normalisation inside, and returns probabilities or values."""
    onnx = asset(f"./{file.name}", ONNX, "model with normalisation in ONNX format", ("mlm:model", "data"), file)
    onnx.extra_fields["mlm:artifact_type"] = "onnx"
    add_raster_bands(onnx, [{"name": name} for name in bands])
    return onnx


def is_model(item: Item) -> bool:
    """Whether a STAC Item describes a model."""
    return "mlm:input" in item["properties"]


def to_card(item: Item, path: Path) -> dict[str, Any]:
    """What an item by `to_item` says of its model. Raises BadInputError for any other item."""
    try:
        properties = item["properties"]
        image, output = properties["mlm:input"][0], properties["mlm:output"][0]
        settings = dict(properties["mlm:hyperparameters"])
        # Several tasks may have one name in the extension.
        module, mlm_task = settings.pop("model"), properties["mlm:tasks"][0]
        task = TASKS.get(settings.get("task", "")) or BY_MLM_TASK[mlm_task]
        card = {
            "architecture": properties["mlm:architecture"],
            "bands": image["bands"],
            "mean": [scaling["mean"] for scaling in image["value_scaling"]],
            "std": [scaling["stddev"] for scaling in image["value_scaling"]],
            "chip": image["input"]["shape"][-1],
            "classes": [_class_name(entry) for entry in output["classification:classes"]],
            "parameters": properties["mlm:total_parameters"],
            "settings": settings,
            "task": task.name,
        }
        card |= {key: properties[field] for key, field in OWN_FIELDS.items() if field in properties}
        if "kinds" in card:
            card["kinds"] = [{key: kind[key] for key in ("architecture", *MODULE)} for kind in card["kinds"]]
        if not task.has_classes:
            card |= {"classes": [output["name"]], "unit": output["unit"]}
        card |= {key: module[key] for key in CUSTOM if key in module}
        card |= {key: module[key] for key in MODULE}
        card |= {key: module[key] for key in TASK_FIELDS if key in task.model_fields}
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise BadInputError(f"{path} lacks {error}, which eopipe needs of a model; use one that train wrote") from error
    wrong_keys = [key for key, kind in TYPES.items() if key in card and typed_mistakes(kind, card[key])]
    if wrong_keys or len(card["mean"]) != len(card["bands"]):
        keys = ", ".join(wrong_keys) or "mean"
        raise BadInputError(f"{path} has values for {keys} that no model has; use one that train wrote")
    return card
