"""A trained model as a function from images to probabilities or values."""

from collections.abc import Callable
from pathlib import Path

from eopipe.arrays import FloatArray
from eopipe.models.model_folder import TrainedModel
from eopipe.models.tasks import predictions


def predictor(trained: TrainedModel, folder: Path, device: str, threads: int) -> Callable[[FloatArray], FloatArray]:
    """Normalised images (N, band, H, W) to what `predictions` gives for the model's task."""
    import torch

    torch.set_num_threads(threads)
    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    place = torch.device("cuda" if use_cuda else "cpu")
    module = trained.build(folder).to(place)

    @torch.inference_mode()
    def run(images: FloatArray) -> FloatArray:
        found: FloatArray = (
            predictions(trained.task, module(torch.from_numpy(images).to(place)), trained.target).cpu().numpy()
        )
        return found

    return run
