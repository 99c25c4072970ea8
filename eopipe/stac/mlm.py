"""A trained model as a STAC Item with the MLM extension, which holds all that using the model needs.

In Python it is a flat card; `to_item` and `to_card` turn one into the other without loss.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.publish import files, sha256
from eopipe.scenes.item import Item
from eopipe.stac.write import FILE, MLM, RASTER, ItemExtent, class_objects, file_asset, plain

# Words of the MLM extension for the tasks of eopipe, and the axes of the answer.
TASKS = {
    "segmentation": ("semantic-segmentation", ["batch", "class", "height", "width"]),
    "classification": ("scene-classification", ["batch", "class"]),
    "regression": ("regression", ["batch", "channel", "height", "width"]),
}
OURS = {word: task for task, (word, _) in TASKS.items()}
SAFETENSORS = "application/vnd.safetensors"
KINDS = {".json": "application/json", ".jsonl": "application/jsonl"}
# Keys of a card that are no hyper-parameter of the training, but needed to build the module again.
MODULE = ("width", "depth", "arguments", "target")


def to_item(card: dict[str, Any], folder: Path, weights: str, scope: ItemExtent) -> Item:
    """Describe a model and the files in its folder, of which one holds the weights."""
    task, _ = TASKS[card["task"]]
    made = scope.item(
        f"eopipe-{plain(card['architecture'], 'model')}-{sha256(folder / weights)[:12]}",
        (MLM, FILE, RASTER),
        {
            "description": f"Model of the task {card['task']}, trained with eopipe: {', '.join(card['classes'])}.",
            "mlm:name": f"eopipe {plain(card['architecture'], 'model')} {card['task']}",
            "mlm:architecture": card["architecture"],
            "mlm:tasks": [task],
            "mlm:framework": "PyTorch",
            "mlm:framework_version": _number(version("torch")),
            "mlm:total_parameters": card["parameters"],
            "mlm:input": [_input(card)],
            "mlm:output": [_output(card)],
            "mlm:hyperparameters": card["settings"] | {"model": {key: card[key] for key in MODULE if key in card}},
        },
    )
    found = (_asset(path, folder) for path in files(folder) if path.name != weights)
    return made | {"assets": {"model": _weights(folder / weights, card["bands"])} | dict(found)}


def _number(text: str) -> str:
    """The first three numbers of a version; what follows tells the build."""
    return ".".join((*re.findall(r"\d+", text.partition("+")[0]), "0", "0")[:3])


def _input(card: dict[str, Any]) -> dict[str, Any]:
    scaling = [{"type": "z-score", "mean": m, "stddev": s} for m, s in zip(card["mean"], card["std"], strict=True)]
    return {
        "name": "image",
        "description": "Physical values of the bands, in this order (stored * scale + offset), scaled band by band; "
        "zero where a pixel is not valid. Bands are found by their names.",
        "bands": list(card["bands"]),
        "input": {
            "shape": [-1, len(card["bands"]), card["chip"], card["chip"]],
            "dim_order": ["batch", "bands", "height", "width"],
            "data_type": "float32",
        },
        "value_scaling": scaling,
    }


def _output(card: dict[str, Any]) -> dict[str, Any]:
    task, axes = TASKS[card["task"]]
    shape = [-1, len(card["classes"]), card["chip"], card["chip"]][: len(axes)]
    found = {"tasks": [task], "result": {"shape": shape, "dim_order": axes, "data_type": "float32"}}
    if card["task"] == "regression":
        return found | {"name": card["classes"][0], "unit": card["unit"], "classification:classes": []}
    return found | {"name": "classes", "classification:classes": class_objects(card["classes"])}


def _weights(file: Path, bands: Sequence[str]) -> dict[str, Any]:
    more: dict[str, Any] = {"mlm:artifact_type": "safetensors.torch.save_file"}
    # The extension wants the bands of the input named in words of another one too; STAC 1.1 forbids those of its own.
    more["raster:bands"] = [{"name": name} for name in bands]
    roles = ("mlm:model", "mlm:weights", "data")
    return file_asset(file, f"./{file.name}", SAFETENSORS, "weights of the model", roles, **more)


def _asset(file: Path, folder: Path) -> tuple[str, dict[str, Any]]:
    path = file.relative_to(folder).as_posix()
    kind = KINDS.get(file.suffix, "application/octet-stream")
    return path, file_asset(file, f"./{path}", kind, f"{file.stem} of the training", ("metadata",))


def is_model(item: Item) -> bool:
    """Whether a STAC Item describes a model."""
    return "mlm:input" in item["properties"]


def to_card(item: Item, where: Path) -> dict[str, Any]:
    """What an item that `to_item` made says of its model. Raises BadInputError for another one."""
    try:
        told = item["properties"]
        source, answer = told["mlm:input"][0], told["mlm:output"][0]
        settings = dict(told["mlm:hyperparameters"])
        module, task = settings.pop("model"), OURS[told["mlm:tasks"][0]]
        card = {
            "architecture": told["mlm:architecture"],
            "bands": source["bands"],
            "mean": [one["mean"] for one in source["value_scaling"]],
            "std": [one["stddev"] for one in source["value_scaling"]],
            "chip": source["input"]["shape"][-1],
            "classes": [one.get("title", one["name"]) for one in answer["classification:classes"]],
            "parameters": told["mlm:total_parameters"],
            "settings": settings,
            "task": task,
        }
        if task == "regression":
            card |= {"classes": [answer["name"]], "unit": answer["unit"]}
        return card | {key: module[key] for key in (*MODULE[:3], *(MODULE[3:] if task == "regression" else ()))}
    except (KeyError, IndexError, TypeError) as error:
        raise BadInputError(f"{where} lacks {error}, which eopipe needs of a model; train makes a whole one") from error
