"""Strong scaling: the same training with 1, 2, 4 … processes; speed-up, efficiency, cost and energy a sample.

    python benchmarks/scaling.py [--processes 1 2] [--rounds 1] [--price 2.5] -- --tiles … --labels … --chips …
        --statistics … --epochs 4 [any other port of eopipe train]

The global batch is constant (strong scaling), so every run computes the same training. Speed is measured over the steps
between the first and the last of each interval between validations, without the first one: neither start nor
validation counts. Energy is measured over the whole run, start included: of the processor by RAPL where its counters
are readable, of GPUs by their power, sampled by nvidia-smi once a second. The table is Markdown.
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
    """Energy of the machine in joules; None for what is not measurable."""

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
            after = counters()
            passed = [passed_since(before[zone], *after[zone]) for zone in after if zone in before]
            self.processor = sum(passed) / 1e6 if passed else None

    def _sample(self) -> None:
        """Integrate the power of all GPUs over time."""
        last = time.monotonic()
        while shutil.which(POWER[0]) and not self._stop.wait(1.0):
            readings = subprocess.run(POWER, capture_output=True, text=True, check=False).stdout.split()
            now = time.monotonic()
            self.gpus = (self.gpus or 0.0) + sum(map(watts, readings)) * (now - last)
            last = now

    @property
    def joules(self) -> float | None:
        """Energy of processor and GPUs."""
        energies = [value for value in (self.processor, self.gpus) if value is not None]
        return sum(energies) if energies else None


def watts(text: str) -> float:
    """A number of nvidia-smi, which prints [N/A] for a GPU without power readings."""
    with suppress(ValueError):
        return float(text)
    return 0.0


def counters() -> dict[str, tuple[int, int]]:
    """Microjoules of each processor package so far, and where its counter wraps around; only root may read them."""
    counters_by_zone = {}
    for zone in sorted(POWERCAP.glob("intel-rapl:?")):
        with suppress(OSError, ValueError):
            now, maximum = ((zone / name).read_text() for name in ("energy_uj", "max_energy_range_uj"))
            counters_by_zone[zone.name] = int(now), int(maximum)
    return counters_by_zone


def passed_since(before: tuple[int, int], now: int, maximum: int) -> int:
    """Microjoules between two readings of a counter that wraps around after `maximum`."""
    return now - before[0] if now >= before[0] else now - before[0] + maximum


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
        model, state, meter, start = Path(folder) / "model", Path(folder) / "state", Meter(), time.monotonic()
        command = [sys.executable, "-m", "eopipe", "train", *arguments, "--processes", str(processes)]
        with meter.on(), (Path(folder) / "log").open("w+") as errors:
            process = subprocess.Popen([*command, "--model", str(model), "--state", str(state)], stderr=errors)
            events = list(read_until_end(process, state))
            if process.returncode:
                errors.seek(0)
                raise SystemExit(errors.read())
        seconds = time.monotonic() - start
        validate_every = next(event["step"] for event in events if event["event"] == "validation")
        batch = read_model_card(model)["settings"]["batch"]
        steps = [(event["step"], event["time"]) for event in events if event["event"] == "step"]
        speed = batch * pace(steps, validate_every)
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


def pace(steps: list[tuple[int, float]], validate_every: int) -> float:
    """Steps a second from (step, seconds), between validations, without those before the first where there are more."""
    intervals: dict[int, list[float]] = defaultdict(list)
    for step, stamp in steps:
        intervals[(step - 1) // validate_every].append(stamp)
    timed = [stamps for number, stamps in intervals.items() if number or len(intervals) == 1]
    seconds = sum(stamps[-1] - stamps[0] for stamps in timed)
    if not seconds:
        raise SystemExit("steps that are validated one by one cannot be timed; lower --batch or use more chips")
    return sum(len(stamps) - 1 for stamps in timed) / seconds


def table(rounds: list[Measured], price: float | None) -> str:
    """A row for each number of processes: medians over the rounds, relative to the fewest processes."""
    by_size: dict[int, list[Measured]] = defaultdict(list)
    for run in rounds:
        by_size[run.processes].append(run)
    first = min(by_size)
    speeds = {size: statistics.median(run.samples_s for run in runs) for size, runs in by_size.items()}
    header = ("processes", "samples/s", "speed-up", "efficiency", "process seconds a 1000 samples", "J a sample")
    rows = [[*header, *(["price a million samples"] if price is not None else [])]]
    for size, speed in sorted(speeds.items()):
        gain = speed / speeds[first]
        energies = [run.joules / run.samples for run in by_size[size] if run.joules is not None]
        energy = f"{statistics.median(energies):.3g}" if energies else "not measured"
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
    """Run the trainings round by round, so that a change of the machine's load affects all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--price", type=float, help="price of an hour of the machine, in any currency")
    parser.add_argument("train", nargs=argparse.REMAINDER, help="-- and the ports of eopipe train")
    options = parser.parse_args()
    arguments = options.train[1:] if options.train[:1] == ["--"] else options.train
    done = [train(size, arguments) for _ in range(options.rounds) for size in options.processes]
    print(table(done, options.price))


if __name__ == "__main__":
    main()
