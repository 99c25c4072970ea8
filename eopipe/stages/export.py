"""Export of a model to ONNX, compared with the original."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Output
from eopipe.ports import AllowCode

# 2: metadata of the ONNX model, units in its check. 3: pixel size, normalisation and what QGIS reads in the metadata.
# 4: what an invalid pixel is to have, in the metadata and in the check.
REVISION = 4


def export(
    model: Annotated[Path, Input("trained model", folder=True)],
    tiles: Annotated[Path, Input("tile store whose pixels the comparison uses", folder=True)],
    onnx: Annotated[
        Path,
        Output(
            "model.onnx",
            "ONNX model: normalisation, network, and softmax or scaling of the output in one graph",
            format="edam:format_2333",
        ),
    ],
    check: Annotated[
        Path,
        Output("export.json", "largest difference from the original model", format="application/json"),
    ],
    *,
    allow_code: AllowCode = None,
) -> None:
    """Export the model to ONNX and compare its output with the original on real chips.

    The graph maps physical values (N, band, H, W) to probabilities (N, class, H, W), for a chip classifier
    (N, class), or to values (N, 1, H, W); N, H and W are dynamic, but for H and W of a model that takes images of one
    size. Raises IntegrityError when a probability of ONNX Runtime, or a value in standard deviations of the labels,
    differs from the original's by more than 0.0001.
    """
    from eopipe.models.model_folder import read_trained_model
    from eopipe.models.onnx import check_onnx, write_onnx
    from eopipe.publish import publish
    from eopipe.text_files import write_json
    from eopipe.tiles.store import Tiles

    trained = read_trained_model(model, allow_code)
    with publish(onnx) as draft, publish(check) as check_draft:
        write_onnx(draft, trained, model)
        write_json(check_draft, check_onnx(draft, trained, model, Tiles(tiles)))
