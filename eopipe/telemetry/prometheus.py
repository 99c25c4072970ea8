"""The state of a training as a text file that Prometheus' node exporter reads (its textfile collector)."""

import re
from collections.abc import Callable
from pathlib import Path

from eopipe.publish import publish

FILE = "eopipe.prom"
GAUGES = {
    "step": "steps done",
    "loss": "mean loss of the last step",
    "learning_rate": "learning rate of the last step",
    "gradient_norm": "norm of the gradient of the last step",
    "samples_per_second": "samples over all workers",
    "data_wait_ratio": "share of the time in which a worker waits for data",
    "memory_bytes": "most memory held, of the GPU or of the process",
    "val_accuracy": "accuracy on the validation chips",
    "val_miou": "mean IoU on the validation chips",
}


class Prometheus:
    """Writes the newest values whole, so that a scrape never reads half a file."""

    def __init__(self, folder: Path, run: str) -> None:
        self.path, self.run = folder / FILE, run
        self._values: dict[str, float] = {}

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Note the newest values."""
        self._values |= {"step": float(step)} | values

    def flush(self) -> None:
        """Write them."""
        with publish(self.path) as draft:
            draft.write_text(text(self.run, self._values), encoding="utf-8")

    def picture(self, _step: int, _name: str, _draw: Callable[[], bytes]) -> None:
        """Prometheus takes no pictures."""

    def close(self, _settings: dict[str, object]) -> None:
        """Write the last values."""
        self.flush()


def text(run: str, values: dict[str, float]) -> str:
    """The values in the exposition format of Prometheus, 0.0.4."""
    label = re.sub(r'(["\\])', r"\\\1", run)
    lines = []
    for name, value in sorted(values.items()):
        metric = f"eopipe_train_{name}"
        lines += [f"# HELP {metric} {GAUGES.get(name, name)}", f"# TYPE {metric} gauge"]
        lines.append(f'{metric}{{run="{label}"}} {float(value)!r}')
    return "\n".join(lines) + "\n"
