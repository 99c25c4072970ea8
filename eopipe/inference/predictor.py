"""Load a trained model as a function from images to probabilities or values."""

from collections.abc import Callable
from pathlib import Path

from eopipe.arrays import FloatArray
from eopipe.models.model_folder import TrainedModel
from eopipe.models.tasks import predictions


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
