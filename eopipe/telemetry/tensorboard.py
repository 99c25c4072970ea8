"""TensorBoard events (extra `tensorboard`): scalars, pictures, hyperparameters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = "tensorboard"


class TensorBoard:
    """Writes event files; a run that resumes hides what it will tell again."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        # Events from this step on, told by the run before, are not shown.
        self._writer: Any = SummaryWriter(str(folder / FOLDER), purge_step=step + 1 if step else None)
        self._last: dict[str, float] = {}

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Add values of a step."""
        self._last |= values
        for name, value in values.items():
            self._writer.add_scalar(name.replace("val_", "val/"), value, step)

    def picture(self, step: int, name: str, draw: Callable[[], bytes]) -> None:
        """Add a PNG."""
        from io import BytesIO

        from PIL import Image

        self._writer.add_image(name, np.asarray(Image.open(BytesIO(draw()))), step, dataformats="HWC")

    def flush(self) -> None:
        """Put the events into their file."""
        self._writer.flush()

    def close(self, settings: dict[str, object]) -> None:
        """Add the hyperparameters with the last values, and close."""
        known = {k: v if isinstance(v, (int, float, str, bool)) else str(v) for k, v in settings.items()}
        scores = {f"hparam/{k}": v for k, v in self._last.items()}
        self._writer.add_hparams(known, scores, run_name=".")
        self._writer.close()
