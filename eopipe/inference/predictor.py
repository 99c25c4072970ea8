"""Open a trained model for prediction: a function from images to probabilities or values, and its windows."""

from collections.abc import Callable
from pathlib import Path

from eopipe.arrays import FloatArray
from eopipe.errors import BadInputError
from eopipe.inference.mosaic import WindowPredictor
from eopipe.models.model_folder import TrainedModel
from eopipe.models.tasks import predictions
from eopipe.tiles.store import CHIP_SET, Tiles


def load_predict_function(
    trained: TrainedModel, folder: Path, device: str, threads: int
) -> Callable[[FloatArray], FloatArray]:
    """Return a function from normalised images (N, band, H, W) to the `predictions` of the model's task."""
    import torch

    torch.set_num_threads(threads)
    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    torch_device = torch.device("cuda" if use_cuda else "cpu")
    module = trained.build(folder).to(torch_device)

    @torch.inference_mode()
    def predict(images: FloatArray) -> FloatArray:
        outputs: FloatArray = (
            predictions(trained.task, module(torch.from_numpy(images).to(torch_device)), trained.target).cpu().numpy()
        )
        return outputs

    return predict


def open_predictor(
    trained: TrainedModel, model: Path, stores: list[Tiles], window: int, halo: int | None, device: str, threads: int
) -> WindowPredictor:
    """A trained model on stores, sorted by scene; of a chip set a window is a slot, and has no halo.

    Raises BadInputError where bands or grids do not fit.
    """
    if chip_set := stores[0].attributes.get(CHIP_SET):
        # Neighbouring slots are not neighbours on the ground.
        window, halo = chip_set["slot"], 0
    for store in stores:
        missing_bands = [band for band in trained.bands if band not in store.names]
        if missing_bands:
            raise BadInputError(
                f"scene {store.scene} has no band {', '.join(missing_bands)}, which the model needs; "
                f"it has {', '.join(store.names)}"
            )
        if not store.frame.is_same(stores[0].frame):
            raise BadInputError(f"scenes {stores[0].scene} and {store.scene} are on different grids")
    return WindowPredictor(
        stores,
        trained.bands,
        trained.normaliser,
        load_predict_function(trained, model, device, threads),
        edge=window,
        halo=trained.architecture.receptive_field_radius if halo is None else halo,
        factor=trained.architecture.factor,
    )
