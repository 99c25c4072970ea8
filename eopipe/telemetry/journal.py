"""`metrics.jsonl`: what a training told, a line an event, in the order of its steps.

The journal in the state folder says when (`time`, seconds since 1970) and notes each resume and checkpoint.
The payload beside the model has only what the same training always tells: steps and epochs, without a clock.
"""

import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger("eopipe")
METRICS = "metrics.jsonl"
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
    return list(_events(path)) if path.is_file() else []


def _events(path: Path) -> Iterator[Event]:
    for line in path.read_bytes().split(b"\n"):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("step"), int):
            yield told


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
