"""Export to ONNX: normalisation, network and softmax or sigmoid as one graph on physical values."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eopipe.arrays import FloatArray
from eopipe.chips.chips import FILLS
from eopipe.errors import IntegrityError, UsageError
from eopipe.models.model_folder import TrainedModel
from eopipe.models.networks import TREE_ARRAYS
from eopipe.stac.mlm import INVALID_PIXELS
from eopipe.tasks import TASKS
from eopipe.tiles.store import Tiles

# The operator set, and the maximum difference of a probability, or of a value in standard deviations of the labels.
OPSET, TOLERANCE = 18, 1e-4
# The domain of the node that an export writes for trees, before they are put in.
PLACEHOLDER_DOMAIN = "eopipe"


class ExportedModel(nn.Module):
    """Normalisation, network and activation of the task: physical values (N, band, H, W) to `predictions`.

    Predictions of whole chips have the shape (N, class).
    """

    def __init__(self, trained: TrainedModel, folder: Path) -> None:
        super().__init__()
        self.model, self.task, self.target = trained.build(folder), TASKS[trained.task], trained.target
        for layer in self.model.modules():
            # torch.export does not trace the fused attention of transformers with dynamic shapes.
            if callable(set_attention := getattr(layer, "set_attn_implementation", None)):
                set_attention("eager")
        self.register_buffer("mean", torch.tensor(trained.normaliser.mean)[None, :, None, None])
        self.register_buffer("std", torch.tensor(trained.normaliser.std)[None, :, None, None])

    def forward(self, image: Tensor) -> Tensor:
        """Probabilities or values; a number that is not finite becomes the mean of its band, normalised 0."""
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        scaled = torch.where(torch.isfinite(image), (image - mean) / std, torch.zeros_like(image))
        outputs = self.task.predictions(self.model(scaled), self.target)
        return outputs.flatten(1) if self.task.is_of_chips else outputs


def write_onnx(target: Path, trained: TrainedModel, folder: Path) -> None:
    """Trace the model with dynamic batch size, height and width, and write one file; of one window only with its size.

    Raises UsageError for a model whose control flow depends on the size of its input, which cannot be traced so.
    """
    from torch.export import Dim

    step = trained.factor
    example = torch.zeros(2, len(trained.bands), 4 * step, 8 * step)
    sizes = {0: Dim("n"), 2: step * Dim("h", min=1), 3: step * Dim("w", min=1)}
    if trained.window:
        example, sizes = torch.zeros(2, len(trained.bands), trained.window, trained.window), {0: Dim("n")}
    # The exporter logs every pass, and that torchvision is missing, which nothing here needs.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                ExportedModel(trained, folder).eval(),
                (example,),
                target,
                input_names=["image"],
                output_names=[TASKS[trained.task].output],
                opset_version=OPSET,
                dynamo=True,
                dynamic_shapes=(sizes,),
                custom_translation_table={torch.ops.eopipe.sum_of_leaves.default: _placeholder},
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise UsageError(
            f"{trained.architecture.name} cannot be exported to ONNX with dynamic sizes: {reason}"
        ) from error
    _check_dynamic(target, trained)
    _finish(target, metadata(trained))


def _check_dynamic(target: Path, trained: TrainedModel) -> None:
    """Raise UsageError where tracing has fixed a size of the input that may vary."""
    import onnx

    sizes = onnx.load(target).graph.input[0].type.tensor_type.shape.dim
    names = ("number of images", "", "height", "width")
    fixed = [name for name, size in zip(names, sizes, strict=True) if name and size.HasField("dim_value")]
    if trained.window:
        fixed = fixed[:1] if names[0] in fixed else []
    if fixed:
        raise UsageError(
            f"{trained.architecture.name} cannot be exported to ONNX with dynamic sizes: its code fixes the "
            f"{' and the '.join(fixed)} when it is traced; take sizes from x.shape, not from len(x) or int(...)"
        )


def metadata(trained: TrainedModel) -> dict[str, str]:
    """What a program needs to use the ONNX model without its sidecar, as `metadata_props`; lists are JSON.

    The normalisation is part of the graph; `mean` and `std` describe it.
    """
    classes = json.dumps(trained.classes, ensure_ascii=False)
    described = {"bands": json.dumps(trained.bands), "classes": classes, "task": trained.task}
    described |= {name: str(getattr(trained, name)) for name in TASKS[trained.task].options}
    described |= {"chip": str(trained.chip)} | units(trained) | _deepness(trained)
    described |= {"mean": json.dumps(trained.normaliser.mean), "std": json.dumps(trained.normaliser.std)}
    described |= {"fill": trained.fill, "invalid_pixels": INVALID_PIXELS[trained.fill]}
    described |= {"members": str(trained.members)} if trained.members > 1 else {}
    if trained.trained_on:
        tiles = trained.trained_on
        described |= {"pixel_size": json.dumps(tiles.pixel_size), "band_units": json.dumps(tiles.units)}
    return described


def _deepness(trained: TrainedModel) -> dict[str, str]:
    """The keys that the plugin Deepness of QGIS reads, each JSON; its resolution is in centimetres."""
    names = {str(number): name for number, name in enumerate(trained.classes)}
    keys: dict[str, Any] = {"model_type": TASKS[trained.task].deepness or None, "tile_size": trained.chip}
    # The graph itself applies the normalisation of the model.
    keys |= {"standardization_mean": [0.0] * len(trained.bands), "standardization_std": [1.0] * len(trained.bands)}
    if trained.trained_on:
        keys["resolution"] = round(trained.trained_on.pixel_size * 100, 3)
    described = {key: json.dumps(value) for key, value in keys.items() if value is not None}
    return described | {"class_names": json.dumps(names, ensure_ascii=False)}


def _placeholder(rows: Any, arrays: Any) -> Any:
    """A node for `sum_of_leaves`, in a domain of its own, that `_with_trees` replaces."""
    from onnx.defs import OpSchema
    from onnxscript.values import Op, Opset

    floats, of_kind = "tensor(float)", {torch.int32: "tensor(int32)", torch.float32: "tensor(float)"}
    inputs = [OpSchema.FormalParameter(name, of_kind[kind]) for name, kind in TREE_ARRAYS.items()]
    inputs, outputs = [OpSchema.FormalParameter("rows", floats), *inputs], [OpSchema.FormalParameter("sums", floats)]
    schema = OpSchema("SumOfLeaves", PLACEHOLDER_DOMAIN, 1, inputs=inputs, outputs=outputs)
    return Op(Opset(PLACEHOLDER_DOMAIN, 1), schema.name, schema)(rows, *arrays)


def _with_trees(graph: Any) -> bool:
    """Replace the placeholders of trees by the tree ensembles of `ai.onnx.ml`; whether there are any."""
    from onnx import numpy_helper

    placeholders = [node for node in graph.node if node.domain == PLACEHOLDER_DOMAIN]
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in placeholders:
        names = node.input[1:]
        arrays = dict(zip(TREE_ARRAYS, (numpy_helper.to_array(tensors[name]) for name in names), strict=True))
        node.CopyFrom(_tree_ensemble(node, arrays))
        for name in names:
            graph.initializer.remove(tensors.pop(name))
    return bool(placeholders)


def _tree_ensemble(node: Any, arrays: dict[str, Any]) -> Any:
    """The operator whose output is base plus the values of the leaves; a pixel goes left up to the threshold."""
    from onnx.helper import make_node

    number, roots = np.arange(len(arrays["left"])), arrays["root"]
    tree = np.searchsorted(roots, number, "right") - 1
    of_tree, is_leaf = roots[tree], arrays["left"] == number
    leaves, columns = np.nonzero(is_leaf[:, None] & (arrays["value"] != 0))
    return make_node(
        "TreeEnsembleRegressor",
        node.input[:1],
        node.output,
        domain="ai.onnx.ml",
        n_targets=len(arrays["base"]),
        base_values=arrays["base"].tolist(),
        nodes_treeids=tree.tolist(),
        nodes_nodeids=(number - of_tree).tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=arrays["feature"].tolist(),
        nodes_values=arrays["threshold"].tolist(),
        nodes_truenodeids=np.where(is_leaf, 0, arrays["left"] - of_tree).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, arrays["right"] - of_tree).tolist(),
        target_treeids=tree[leaves].tolist(),
        target_nodeids=(number - of_tree)[leaves].tolist(),
        target_ids=columns.tolist(),
        target_weights=arrays["value"][leaves, columns].tolist(),
    )


def _finish(target: Path, properties: dict[str, str]) -> None:
    """Put trees in, and replace the exporter's metadata: paths of this machine, and sets in arbitrary order."""
    import onnx

    model = onnx.load(target)
    graph = model.graph
    if _with_trees(graph):
        domains = [entry for entry in model.opset_import if entry.domain != PLACEHOLDER_DOMAIN]
        del model.opset_import[:]
        model.opset_import.extend([*domains, onnx.helper.make_opsetid("ai.onnx.ml", 3)])
    for message in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info):
        del message.metadata_props[:]
    onnx.helper.set_model_props(model, dict(sorted(properties.items())))
    target.write_bytes(model.SerializeToString(deterministic=True))


def check_onnx(target: Path, trained: TrainedModel, folder: Path, tiles: Tiles) -> dict[str, Any]:
    """Compare both on real chips of the sizes that the model takes. Raises IntegrityError above `TOLERANCE`."""
    import onnxruntime

    # Values are compared in their standard deviations.
    unit = trained.target[1] if trained.target else 1.0
    # The order of sums depends on threads.
    torch.set_num_threads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    model, largest, count = ExportedModel(trained, folder).eval(), 0.0, 0
    for image in _chips(tiles, trained):
        with torch.inference_mode():
            expected = model(torch.from_numpy(image)).numpy()
        (actual,) = session.run(None, {"image": image})
        largest, count = max(largest, float(np.abs(expected - actual).max()) / unit), count + 1
    if not largest <= TOLERANCE:
        raise IntegrityError(f"the ONNX model differs from the model by {largest:.2g}, more than {TOLERANCE:.2g}")
    report = {"largest_difference": float(f"{largest:.0e}"), "tolerance": TOLERANCE, "chips": count}
    return report | {"bands": list(trained.bands), "classes": list(trained.classes)} | units(trained)


def units(trained: TrainedModel) -> dict[str, str]:
    """The units of input and output; probabilities have none."""
    return {"input_unit": "physical value: stored * scale + offset", "output_unit": trained.unit or "1"}


def _chips(tiles: Tiles, trained: TrainedModel) -> list[FloatArray]:
    """Windows of one and of two chips where the store has pixels, in physical units; of one window of one chip.

    Each is filled from its own valid pixels.
    """
    chip = trained.chip
    sizes = [(chip, chip), (min(2 * chip, tiles.shape[0] // chip * chip), chip)][: 1 if trained.window else 2]
    # A store may hold fewer pixels than a chip has.
    begin = [axis.start for axis in tiles.parts[0].stored_window]
    corners = [
        [min(*pair) for pair in zip(begin, np.subtract(tiles.shape, size).tolist(), strict=True)] for size in sizes
    ]
    windows = [(slice(y, y + h), slice(x, x + w)) for (y, x), (h, w) in zip(corners, sizes, strict=True)]
    images = [tiles.physical(trained.bands, *window) for window in windows]
    for image, window in zip(images, windows, strict=True):
        FILLS[trained.fill](image, tiles.valid(*window), None)
    return [image[None] for image in images]
