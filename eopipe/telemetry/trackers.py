"""The trackers that a training tells its values. One that fails is left out with one warning: it ends no training."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from eopipe.telemetry.mlflow import MLflow
from eopipe.telemetry.prometheus import Prometheus
from eopipe.telemetry.tensorboard import TensorBoard

log = logging.getLogger("eopipe")


class Tracker(Protocol):
    """What every tracker can be told."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Take values of a step by name."""

    def picture(self, step: int, name: str, draw: Callable[[], bytes]) -> None:
        """Take a picture of a step; `draw` makes its PNG."""

    def flush(self) -> None:
        """Let others see what was told so far."""

    def close(self, settings: dict[str, object]) -> None:
        """Take the settings of the training; nothing follows."""


class Trackers:
    """Trackers by name, in a folder; `run` names the training, `step` is where it stands."""

    def __init__(self, names: tuple[str, ...], folder: Path, run: str, step: int) -> None:
        makers: dict[str, Callable[[], Tracker]] = {
            "tensorboard": lambda: TensorBoard(folder, step),
            "mlflow": lambda: MLflow(folder, run, step),
            "prometheus": lambda: Prometheus(folder, run),
        }
        self._on: dict[str, Tracker] = {}
        for name in dict.fromkeys(names):
            self._guard(name, lambda name=name: self._on.update({name: makers[name]()}))  # type: ignore[misc]

    def __bool__(self) -> bool:
        return bool(self._on)

    def each(self, tell: Callable[[Tracker], None]) -> None:
        """Tell every tracker."""
        for name, tracker in list(self._on.items()):
            self._guard(name, lambda tracker=tracker: tell(tracker))  # type: ignore[misc]

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except ModuleNotFoundError as error:
            self._leave(name, f"{error}; pip install 'eopipe[{name}]'")
        except Exception as error:  # noqa: BLE001 - whatever it is, the training is worth more
            self._leave(name, f"{type(error).__name__}: {error}")

    def _leave(self, name: str, reason: str) -> None:
        self._on.pop(name, None)
        log.warning("event=tracker-off tracker=%s reason=%r", name, reason)
