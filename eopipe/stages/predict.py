"""Map of a scene, or of a mosaic of scenes."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Knob, Option, Output

COG = "image/tiff; application=geotiff; profile=cloud-optimized"


def predict(
    model: Annotated[
        Path,
        Input("trained model: its folder, its STAC Item model.json, or a STAC catalog with it", mixed=True),
    ],
    tiles: Annotated[tuple[Path, ...], Input("tile stores; predictions are averaged over valid scenes", folder=True)],
    classes: Annotated[
        Path,
        Output(
            "classes.tif",
            "COG of class numbers, 255 where no scene is valid; for regression, of values",
            format=COG,
        ),
    ],
    probabilities: Annotated[
        Path,
        Output(
            "probabilities.tif",
            "COG of class probabilities, one band per class, scale 1/10000; for regression, standard deviation among "
            "the scenes and their number",
            format=COG,
        ),
    ],
    *,
    halo: Annotated[
        int | None,
        Option("pixels read around each window (default: receptive-field radius)", ge=0, advanced=True),
    ] = None,
    window: Annotated[
        int, Option("edge of a window in pixels; memory grows with its square", ge=64, advanced=True)
    ] = 1024,
    device: Annotated[Literal["auto", "cpu", "cuda"], Knob("device to compute on")] = "auto",
    threads: Annotated[int, Option("CPU threads; more change the order of sums", ge=1)] = 1,
) -> None:
    """Predict a seamless map of classes and their probabilities, or of values, window by window.

    A chip classifier predicts one class for each cell of its chip size. Bands are selected by name. Raises
    BadInputError when a scene lacks a band of the model or is on another grid.
    """
    from eopipe.errors import BadInputError
    from eopipe.inference.mosaic import WindowPredictor, write_prediction
    from eopipe.inference.predictor import load_predict_function
    from eopipe.models.model_folder import read_trained_model
    from eopipe.tiles.grid import same_grid
    from eopipe.tiles.store import Tiles

    trained = read_trained_model(model)
    stores = sorted((Tiles(path) for path in tiles), key=lambda store: store.scene)
    for store in stores:
        missing_bands = [band for band in trained.bands if band not in store.names]
        if missing_bands:
            raise BadInputError(
                f"scene {store.scene} has no band {', '.join(missing_bands)}, which the model needs; "
                f"it has {', '.join(store.names)}"
            )
        if not same_grid(store.grid, stores[0].grid):
            raise BadInputError(f"scenes {stores[0].scene} and {store.scene} are on different grids")
    window_predictor = WindowPredictor(
        stores,
        trained.bands,
        trained.normaliser,
        load_predict_function(trained, model, device, threads),
        edge=window,
        halo=trained.architecture.receptive_field_radius if halo is None else halo,
        factor=trained.architecture.factor,
    )
    write_prediction(window_predictor, trained, classes, probabilities)
