"""`metrics.jsonl`: the journal of a training, a line for each event, in the order of its steps.

In the state folder each event has its `time` (seconds since 1970), and there are events of resumes, checkpoints,
throughput and the end. The file beside the model has only the events that are the same in each run: steps,
validations.
"""

import hashlib
import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from eopipe.errors import BadInputError

log = logging.getLogger("eopipe")
METRICS = "metrics.jsonl"
# What describes a training in its state folder, and in the folder of its model.
JOB, CARD = "job.json", "model.json"
# Events that are the same in each run of a training, however often it is interrupted.
PUBLISHED = ("step", "validation")

Event = dict[str, Any]


class Journal:
    """Appends the events of a training; on a resume, those after the restored step are removed.

    Lost lines are logged; they do not end the training.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / METRICS
        events = [event for event in read_journal(self.path) if event["step"] <= step]
        # A process that is killed here must not leave half a line.
        draft = self.path.with_suffix(".draft")
        draft.write_bytes(b"".join(map(_line, events)))
        draft.replace(self.path)
        self._file = self.path.open("ab")
        if gaps := missing_steps(events, step):
            log.warning("event=metrics_lost steps=%d first=%d in=%s", len(gaps), gaps[0], METRICS)

    def add(self, event: str, step: int, **values: Any) -> None:
        """Append an event of a step; numbers are rounded to nine digits, and null where they are not finite."""
        entry = {"event": event, "step": step, **{k: rounded(v) for k, v in values.items()}}
        self._file.write(_line(entry | {"time": round(time.time(), 3)}))
        # In the kernel's buffers it survives the end of this process.
        self._file.flush()

    def sync(self) -> None:
        """Write the lines to the disk, before a checkpoint that relies on them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[Event]:
    """The events of a journal; none where there is no file, and without a last line that is truncated."""
    return list(parse_lines(path.read_bytes().split(b"\n"))) if path.is_file() else []


def parse_lines(lines: Iterable[bytes]) -> Iterator[Event]:
    """The event of each line; a line that is not a whole event is skipped."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("step"), int):
            yield event


@dataclass
class JournalTail:
    """Reads what is added to a journal, line by whole line, also after the file was removed or replaced."""

    path: Path
    _file: BinaryIO | None = None
    _partial: bytes = b""

    def poll(self) -> tuple[list[Event], bool]:
        """The events since the last call; and whether these are a new journal from its start, after a resume."""
        is_new = self._reopen()
        return list(self._events()), is_new

    def _reopen(self) -> bool:
        """Open the file that has the name now, if it is not the one that is read already."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            # Not yet there, or removed since the model is published: the open file still has its last lines.
            return False
        if self._file and os.path.samestat(os.fstat(file.fileno()), os.fstat(self._file.fileno())):
            file.close()
            return False
        self.close()
        self._file, self._partial = file, b""
        return True

    def _events(self) -> Iterator[Event]:
        if self._file:
            *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
            yield from parse_lines(lines)

    @property
    def is_removed(self) -> bool:
        """Whether the journal was there and is no longer."""
        return self._file is not None and not self.path.exists()

    def close(self) -> None:
        if self._file:
            self._file.close()


@dataclass(frozen=True)
class FollowedRun:
    """A training to follow: the folder of its journal, its name, its settings, and the folder that trackers write to.

    `is_finished` if the journal belongs to a published model, to which nothing is appended.
    """

    folder: Path
    name: str
    settings: dict[str, Any]
    views: Path
    is_finished: bool = False

    @property
    def title(self) -> str:
        return f"train-{self.name[:8]}"


def find_run(path: Path, views: Path | None) -> FollowedRun:
    """The training that a path names: a model folder, finished or in training, or a state folder.

    Raises BadInputError where there is none.
    """
    states = [path, *path.glob("*/"), *path.parent.glob(f".{path.name}.state/*/")]
    jobs = sorted((state / JOB for state in states if (state / JOB).is_file()), key=lambda job: job.stat().st_mtime)
    if jobs:
        job = json.loads(jobs[-1].read_bytes())
        state = jobs[-1].parent.resolve()
        settings = job["settings"] | {"weights": job["loss_weights"], "target": job["target"]}
        return FollowedRun(state, state.name, settings, views or Path(job["views"]))
    if (path / CARD).is_file() and (path / METRICS).is_file():
        settings = json.loads((path / CARD).read_bytes())["properties"]["mlm:hyperparameters"]
        del settings["model"]
        name = hashlib.sha256((path / METRICS).read_bytes()).hexdigest()[:16]
        return FollowedRun(path, name, settings, views or path.parent / f"{path.name}.views", is_finished=True)
    raise BadInputError(
        f"{path} is not a training: it holds neither {JOB} (a state folder) nor {CARD} and {METRICS} (a model)"
    )


def published_lines(path: Path) -> bytes:
    """The part of a journal that is the same, byte for byte, in each run of the training."""
    events = (event for event in read_journal(path) if event["event"] in PUBLISHED)
    return b"".join(_line({k: v for k, v in event.items() if k != "time"}) for event in events)


def missing_steps(events: list[Event], steps: int) -> list[int]:
    """The steps of 1 to `steps` that have no line, or more than one."""
    counts = Counter(event["step"] for event in events if event["event"] == "step")
    return [step for step in range(1, steps + 1) if counts[step] != 1]


def rounded(value: Any) -> Any:
    """A value that JSON can represent: numbers rounded to nine digits, null for those that are not finite."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def _line(event: Event) -> bytes:
    return json.dumps(event, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"
