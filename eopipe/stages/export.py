"""Export a model to ONNX and check it against the model."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output


def export(
    model: Annotated[Path, Input("trained model", folder=True)],
    tiles: Annotated[Path, Input("a tile store to check with real pixels", folder=True)],
    onnx: Annotated[
        Path,
        Output(
            "model.onnx",
            "normalisation, model and probabilities or values as one ONNX graph",
            format="edam:format_2333",
        ),
    ],
    check: Annotated[Path, Output("export.json", "largest difference to the model", format="application/json")],
    *,
    opset: Annotated[int, Option("ONNX operator set", ge=18, le=23)] = 18,
    tolerance: Annotated[
        float, Option("largest difference of a probability, or of a value in standard deviations of the labels", gt=0)
    ] = 1e-4,
) -> None:
    """Write the model as ONNX and compare it with the model on real chips.

    The graph maps physical values (N, band, H, W) to probabilities (N, class, H, W), of chips
    (N, class), or values (N, 1, H, W); N, H and W are dynamic. Raises IntegrityError when the results of
    ONNX Runtime differ from the model's by more than `tolerance`.
    """
    from eopipe.models.model_folder import read_trained_model
    from eopipe.models.onnx import check_onnx, write_onnx
    from eopipe.publish import publish, write_json
    from eopipe.tiles.store import Tiles

    trained = read_trained_model(model)
    with publish(onnx) as draft, publish(check) as check_draft:
        write_onnx(draft, trained, model, opset)
        write_json(check_draft, check_onnx(draft, trained, model, Tiles(tiles), tolerance))
