"""`metrics.jsonl`: what a training told, a line an event, in the order of its steps.

The journal in the state folder says when (`time`, seconds since 1970) and notes each resume and checkpoint.
The payload beside the model has only what the same training always tells: steps and epochs, without a clock.
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
# Told alike by every run of a training, however often it is interrupted.
LASTING = ("step", "epoch")

Event = dict[str, Any]


class Journal:
    """The lines of a training, appended as they happen; those behind a restored step are cut off.

    Lines that are lost are told, and end no training.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / METRICS
        kept = [event for event in read(self.path) if event["step"] <= step]
        # A resume that falls between two lines must not leave half of one.
        draft = self.path.with_suffix(".draft")
        draft.write_bytes(b"".join(map(_line, kept)))
        draft.replace(self.path)
        self._file = self.path.open("ab")
        if gaps := missing(kept, step):
            log.warning("event=metrics-lost steps=%d first=%d in=%s", len(gaps), gaps[0], METRICS)

    def add(self, event: str, step: int, **values: Any) -> Event:
        """Append an event of a step; numbers are kept to nine digits, and those that are not finite as null."""
        told = {"event": event, "step": step, **{k: rounded(v) for k, v in values.items()}}
        self._file.write(_line(told | {"time": round(time.time(), 3)}))
        # What the kernel has survives the end of this process.
        self._file.flush()
        return told

    def sync(self) -> None:
        """Put the lines on the disk, before a checkpoint that counts on them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> list[Event]:
    """The events of a journal or a payload; none where there is no file, and not a last line that was cut short."""
    return list(parse(path.read_bytes().split(b"\n"))) if path.is_file() else []


def parse(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events that lines hold; a line that is not whole is passed over."""
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("step"), int):
            yield told


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
            yield from parse(lines)

    @property
    def is_removed(self) -> bool:
        """Whether the journal was there and is no longer."""
        return self._file is not None and not self.path.exists()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


@dataclass(frozen=True)
class FollowedRun:
    """A training to follow: the folder of its journal, its name, its settings, and the folder that trackers write to.

    `is_finished` where the journal is the one of a published model, to which nothing is added.
    """

    folder: Path
    name: str
    settings: dict[str, Any]
    views: Path
    is_finished: bool = False

    @property
    def title(self) -> str:
        """What a tracker calls it."""
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


def payload(path: Path) -> bytes:
    """What of a journal the same training always tells, byte for byte."""
    lasting = (event for event in read(path) if event["event"] in LASTING)
    return b"".join(_line({k: v for k, v in event.items() if k != "time"}) for event in lasting)


def missing(events: list[Event], steps: int) -> list[int]:
    """The steps of 1 to `steps` that have no line, or more than one."""
    told = Counter(event["step"] for event in events if event["event"] == "step")
    return [step for step in range(1, steps + 1) if told[step] != 1]


def rounded(value: Any) -> Any:
    """A value as JSON can hold it: numbers to nine digits, null for those that are not finite."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def _line(event: Event) -> bytes:
    return json.dumps(event, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"
