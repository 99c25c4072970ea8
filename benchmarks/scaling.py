"""What more processes bring: the same training with 1, 2, 4 … of them, speed-up, efficiency, cost and energy a sample.

    python benchmarks/scaling.py [--processes 1 2] [--rounds 1] [--price 2.5] -- --tiles … --labels … --chips …
        --statistics … --epochs 4 [any other port of eopipe train]

The global batch stays as it is (strong scaling), so every run learns the same. Speed is that of the steps between the
first and the last of each epoch, without the first epoch: neither start nor validation counts. Energy is that of
the whole run, start included: of the processor by RAPL where the kernel lets it be read, of GPUs by their power as
nvidia-smi tells it once a second. The table is Markdown.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from eopipe.models.model_folder import read_model_card
from eopipe.telemetry.journal import METRICS, JournalTail

POWERCAP = Path("/sys/class/powercap")
POWER = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")


@dataclass
class Meter:
    """Joules of the machine; None for what it does not tell."""

    processor: float | None = None
    gpus: float | None = None
    _stop: Event = field(default_factory=Event)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Measure the block."""
        before, watcher = counters(), Thread(target=self._sample)
        watcher.start()
        try:
            yield
        finally:
            self._stop.set()
            watcher.join()
            passed = [passed_since(before[zone], now, top) for zone, (now, top) in counters().items() if zone in before]
            self.processor = sum(passed) / 1e6 if passed else None

    def _sample(self) -> None:
        """Power of all GPUs times the time between two looks."""
        last = time.monotonic()
        while shutil.which(POWER[0]) and not self._stop.wait(1.0):
            told = subprocess.run(POWER, capture_output=True, text=True, check=False).stdout.split()
            now = time.monotonic()
            self.gpus = (self.gpus or 0.0) + sum(map(watts, told)) * (now - last)
            last = now

    @property
    def joules(self) -> float | None:
        """All of it."""
        known = [value for value in (self.processor, self.gpus) if value is not None]
        return sum(known) if known else None


def watts(word: str) -> float:
    """A number of nvidia-smi; it says [N/A] for a GPU that does not tell."""
    with suppress(ValueError):
        return float(word)
    return 0.0


def counters() -> dict[str, tuple[int, int]]:
    """Microjoules of each processor package so far, and where its counter begins anew; only root may read them."""
    found = {}
    for zone in sorted(POWERCAP.glob("intel-rapl:?")):
        with suppress(OSError, ValueError):
            now, top = ((zone / name).read_text() for name in ("energy_uj", "max_energy_range_uj"))
            found[zone.name] = int(now), int(top)
    return found


def passed_since(before: tuple[int, int], now: int, top: int) -> int:
    """Microjoules between two looks at a counter that begins anew behind `top`."""
    return now - before[0] if now >= before[0] else now - before[0] + top


@dataclass(frozen=True)
class Measured:
    """One training: processes, samples a second in its steps, samples and seconds in all, joules if known."""

    processes: int
    samples_s: float
    samples: int
    seconds: float
    joules: float | None


def train(processes: int, arguments: list[str]) -> Measured:
    """Train once."""
    with tempfile.TemporaryDirectory() as folder:
        model, state, meter, began = Path(folder) / "model", Path(folder) / "state", Meter(), time.monotonic()
        command = [sys.executable, "-m", "eopipe", "train", *arguments, "--processes", str(processes)]
        with meter.on(), (Path(folder) / "log").open("w+") as errors:
            process = subprocess.Popen([*command, "--model", str(model), "--state", str(state)], stderr=errors)
            events = list(read_until_end(process, state))
            if process.returncode:
                errors.seek(0)
                raise SystemExit(errors.read())
        seconds = time.monotonic() - began
        steps_per_epoch = next(event["step"] // event["epoch"] for event in events if event["event"] == "epoch")
        batch = read_model_card(model)["settings"]["batch"]
        steps = [(event["step"], event["time"]) for event in events if event["event"] == "step"]
        speed = batch * pace(steps, steps_per_epoch)
        return Measured(processes, speed, len(steps) * batch, seconds, meter.joules)


def read_until_end(process: "subprocess.Popen[bytes]", state: Path) -> Iterator[dict[str, Any]]:
    """The events of a training's journal with their time, which is removed with the state folder at its end."""
    while process.poll() is None and not list(state.glob(f"*/{METRICS}")):
        time.sleep(0.05)
    with closing(JournalTail(next(state.glob(f"*/{METRICS}"), state / METRICS))) as tail:
        while process.poll() is None:
            yield from tail.poll()[0]
            time.sleep(0.2)
        yield from tail.poll()[0]


def pace(steps: list[tuple[int, float]], long: int) -> float:
    """Steps a second from (step, seconds), within epochs of `long` steps, without the first where there are more."""
    epochs: dict[int, list[float]] = defaultdict(list)
    for step, stamp in steps:
        epochs[(step - 1) // long].append(stamp)
    kept = [stamps for epoch, stamps in epochs.items() if epoch or len(epochs) == 1]
    seconds = sum(stamps[-1] - stamps[0] for stamps in kept)
    if not seconds:
        raise SystemExit("epochs of one step cannot be timed; lower --batch or give more chips")
    return sum(len(stamps) - 1 for stamps in kept) / seconds


def table(rounds: list[Measured], price: float | None) -> str:
    """A row a number of processes: medians over the rounds, beside the fewest processes."""
    by_size: dict[int, list[Measured]] = defaultdict(list)
    for one in rounds:
        by_size[one.processes].append(one)
    first = min(by_size)
    speeds = {size: statistics.median(one.samples_s for one in runs) for size, runs in by_size.items()}
    head = ("processes", "samples/s", "speed-up", "efficiency", "process seconds a 1000 samples", "J a sample")
    rows = [[*head, *(["price a million samples"] if price is not None else [])]]
    for size, speed in sorted(speeds.items()):
        gain = speed / speeds[first]
        known = [one.joules / one.samples for one in by_size[size] if one.joules is not None]
        energy = f"{statistics.median(known):.3g}" if known else "not told"
        row = [
            str(size),
            f"{speed:.1f}",
            f"{gain:.2f}",
            f"{gain * first / size:.0%}",
            f"{size / speed * 1e3:.2f}",
            energy,
        ]
        rows.append([*row, *([f"{price / 3600 / speed * 1e6:.2f}"] if price is not None else [])])
    rows.insert(1, ["---:"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Run the trainings round by round, so that a change of the machine's load meets all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--price", type=float, help="of an hour of the machine, in any currency")
    parser.add_argument("train", nargs=argparse.REMAINDER, help="-- and the ports of eopipe train")
    asked = parser.parse_args()
    words = asked.train[1:] if asked.train[:1] == ["--"] else asked.train
    done = [train(size, words) for _ in range(asked.rounds) for size in asked.processes]
    print(table(done, asked.price))


if __name__ == "__main__":
    main()
