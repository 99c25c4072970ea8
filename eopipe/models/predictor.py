"""A trained model as a function from images to probabilities."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eopipe.models.trained import Trained

Floats = npt.NDArray[np.float32]


def predictor(trained: Trained, folder: Path, device: str, threads: int) -> Callable[[Floats], Floats]:
    """Normalised images (N, band, H, W) to class probabilities (N, class, H, W)."""
    import torch

    torch.set_num_threads(threads)
    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    place = torch.device("cuda" if use_cuda else "cpu")
    module = trained.build(folder).to(place)

    @torch.inference_mode()
    def run(images: Floats) -> Floats:
        chances: Floats = module(torch.from_numpy(images).to(place)).softmax(1).cpu().numpy()
        return chances

    return run
