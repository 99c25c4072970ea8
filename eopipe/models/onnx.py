"""ONNX: the whole way from physical values to probabilities, or to values of a regression, as one graph."""

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eopipe.arrays import FloatArray
from eopipe.errors import IntegrityError, UsageError
from eopipe.models.model_folder import TrainedModel
from eopipe.models.tasks import predictions
from eopipe.tiles.store import Tiles


class Portable(nn.Module):
    """Normalisation, model and what its task makes of it: physical values (N, band, H, W) to `predictions`.

    Those of chips are (N, class).
    """

    def __init__(self, trained: TrainedModel, folder: Path) -> None:
        super().__init__()
        self.model, self.task, self.target = trained.build(folder), trained.task, trained.target
        for part in self.model.modules():
            # torch.export does not follow the fused attention of transformers through free sizes.
            if callable(slower := getattr(part, "set_attn_implementation", None)):
                slower("eager")
        self.register_buffer("mean", torch.tensor(trained.normaliser.mean)[None, :, None, None])
        self.register_buffer("std", torch.tensor(trained.normaliser.std)[None, :, None, None])

    def forward(self, image: Tensor) -> Tensor:
        """Probabilities or values; pixels that are not finite count as the mean of the band."""
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        scaled = torch.where(torch.isfinite(image), (image - mean) / std, torch.zeros_like(image))
        found = predictions(self.task, self.model(scaled), self.target)
        return found.flatten(1) if self.task == "classification" else found


def write_onnx(target: Path, trained: TrainedModel, folder: Path, opset: int) -> None:
    """Trace the model with free batch, height and width, and write one file.

    Raises UsageError for a model that decides by the size of its input, as it must be traced for all sizes.
    """
    from torch.export import Dim

    step = trained.architecture.factor
    example = torch.zeros(2, len(trained.bands), 4 * step, 8 * step)
    sizes = {0: Dim("n"), 2: step * Dim("h", min=1), 3: step * Dim("w", min=1)}
    # The exporter tells of every pass, and of torchvision, which nothing here needs.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Portable(trained, folder).eval(),
                (example,),
                target,
                input_names=["image"],
                output_names=["values" if trained.task == "regression" else "probabilities"],
                opset_version=opset,
                dynamo=True,
                dynamic_shapes=(sizes,),
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise UsageError(f"{trained.architecture.name} cannot be exported to ONNX with free sizes: {reason}") from error
    _strip(target)


def _strip(target: Path) -> None:
    """Drop the exporter's notes: stack traces with paths of this machine, and sets in any order."""
    import onnx

    made = onnx.load(target)
    graph = made.graph
    for part in (made, graph, *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info):
        del part.metadata_props[:]
    target.write_bytes(made.SerializeToString(deterministic=True))


def check_onnx(target: Path, trained: TrainedModel, folder: Path, tiles: Tiles, tolerance: float) -> dict[str, Any]:
    """Run both on real chips of two sizes; raises IntegrityError beyond the tolerance.

    Values differ by so many standard deviations of the labels.
    """
    import onnxruntime

    unit = trained.target[1] if trained.task == "regression" else 1.0
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    model, worst, count = Portable(trained, folder).eval(), 0.0, 0
    for image in _chips(tiles, trained):
        with torch.inference_mode():
            want = model(torch.from_numpy(image)).numpy()
        (have,) = session.run(None, {"image": image})
        worst, count = max(worst, float(np.abs(want - have).max()) / unit), count + 1
    if not worst <= tolerance:
        raise IntegrityError(f"the ONNX model differs from the model by {worst:.2g}, more than {tolerance:.2g}")
    told = {"largest_difference": float(f"{worst:.0e}"), "tolerance": tolerance, "chips": count}
    return told | {"bands": list(trained.bands), "classes": list(trained.classes)}


def _chips(tiles: Tiles, trained: TrainedModel) -> list[FloatArray]:
    """Windows of one and of two chips, in physical units."""
    chip = trained.chip
    sizes = [(chip, chip), (min(2 * chip, tiles.shape[0] // chip * chip), chip)]
    return [tiles.physical(trained.bands, slice(0, h), slice(0, w))[None] for h, w in sizes]
