"""Checkpoints: one published folder a step, the newest one that verifies wins.

A checkpoint is a folder with one safetensors file a part (`model`, `optimiser` and whatever else the engine
names), and one more for each worker that holds rows of its own (`model.1`), `state.json` and a manifest; nothing in
it is ever unpickled. `latest.json` is written after it.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints.identity import refuse_other
from eopipe.checkpoints.sharded import Piece, Places, joined, place_of, places
from eopipe.errors import BadInputError, IntegrityError
from eopipe.publish import MANIFEST, publish, read_json, sha256, verify, write_json

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("eopipe")
Parts = dict[str, "dict[str, Tensor]"]
LATEST = "latest.json"
HEADER = "eopipe"
GOALS = {"miou": 1, "f1_macro": 1, "rmse": -1}


@dataclass
class Progress:
    """Where a training stands; data position and random streams are functions of the step.

    `score` is what these very weights reached on the validation chips (higher is better), if they were measured.
    `worlds` tells from which step on how many workers took the steps.
    """

    step: int = 0
    losses: float = 0.0
    history: list[Any] = field(default_factory=list)
    score: float | None = None
    worlds: list[list[int]] = field(default_factory=list)

    def enter(self, size: int) -> None:
        """Note how many workers take the steps from here on."""
        if self.worlds and self.worlds[-1][0] == self.step:
            self.worlds.pop()
        if not self.worlds or self.worlds[-1][1] != size:
            self.worlds.append([self.step, size])

    def note(self, row: dict[str, Any]) -> None:
        """Note what an epoch reached."""
        self.history.append(row)
        self.score = _reached(row)

    @property
    def is_best(self) -> bool:
        """Whether these very weights were measured and none before reached more."""
        return self.score is not None and self.score >= max(_reached(row) for row in self.history)


def judged(val: dict[str, Any] | None) -> float | None:
    """What scores on the validation chips are worth (higher is better): mIoU, macro F1 of chips, or RMSE negated."""
    for name, sign in GOALS.items():
        if val and val.get(name) is not None:
            return sign * float(val[name])
    return None


def _reached(row: dict[str, Any]) -> float:
    """What an epoch reached: its scores, else its loss on the validation chips, else on the training chips, negated."""
    val = row.get("val") or {}
    found = judged(val)
    return -float(val.get("loss", row.get("loss", 0.0))) if found is None else found


def save(
    folder: Path,
    progress: Progress,
    parts: Mapping[str, "Mapping[str, Tensor | Piece]"],
    *,
    keep: int,
    identity: dict[str, Any] | None = None,
    token: int = 0,
    fence: Callable[[], None] = lambda: None,
    collect: Callable[[Path], None] = lambda _draft: None,
) -> Path:
    """Write the parts and the progress of a step; drop all but the newest `keep` checkpoints and the best.

    `collect` brings the parts of other workers into the draft. `fence` raises where another training has taken the
    folder over: nothing is published then. Raises NoSpaceError on a full disk; the checkpoints before stay as they are.
    """
    target = folder / f"step-{progress.step:09d}"
    with publish(target, folder=True) as draft:
        for name, tensors in parts.items():
            _write(draft / f"{name}.safetensors", tensors, progress)
        collect(draft)
        write_json(draft / "state.json", asdict(progress) | {"token": token, "identity": identity or {}})
        fence()
    _point(folder, target, token)
    _drop(folder, keep)
    return target


def leave(room: Path, rank: int, progress: Progress, parts: Mapping[str, "Mapping[str, Tensor | Piece]"]) -> None:
    """Write the rows that another worker than the first one holds, for that one to collect."""
    with publish(place_of(room, progress.step, rank), folder=True) as draft:
        for name, tensors in parts.items():
            if tensors:
                _write(draft / f"{name}.{rank}.safetensors", tensors, progress)


def _write(path: Path, tensors: Mapping[str, "Tensor | Piece"], progress: Progress) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        held = {k: (v.rows if isinstance(v, Piece) else v).contiguous() for k, v in tensors.items()}
        # The step in each file tells parts of different steps apart even under a fresh manifest. Two entries of a
        # header would come in any order, and the same checkpoint have other bytes.
        told = json.dumps({"step": progress.step, "pieces": places(tensors)}, sort_keys=True)
        save_file(held, path, {HEADER: told})
    except SafetensorError as error:
        # It tells errors of the system in words only.
        found = re.search(r"os error (\d+)", str(error))
        if not found:
            raise
        raise OSError(int(found[1]), str(error), str(path)) from error


def _point(folder: Path, target: Path, token: int) -> None:
    with publish(folder / LATEST) as draft:
        write_json(draft, {"checkpoint": target.name, "manifest": sha256(target / MANIFEST), "token": token})


def _drop(folder: Path, keep: int) -> None:
    found, top = steps(folder), best(folder)
    for old in found[:-keep]:
        if old != top:
            shutil.rmtree(old)


def steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


def best(folder: Path) -> Path | None:
    """The checkpoint with the highest validation score, the newest of equal ones; None where none was measured."""
    scored = [(score, path) for path in steps(folder) if (score := _score(path)) is not None]
    return max(scored)[1] if scored else None


def _score(path: Path) -> float | None:
    with suppress(BadInputError):
        score = read_json(path / "state.json").get("score")
        return None if score is None else float(score)
    return None


def restore(folder: Path, identity: dict[str, Any] | None = None) -> tuple[Progress, Parts] | None:
    """Progress and parts (on the CPU) of the newest checkpoint that verifies; None when there is none.

    A damaged one, or one mixed from several steps, is passed over with a word in the log for the one before.
    Raises BadInputError for the checkpoint of another training, with the difference.
    """
    for path in reversed(steps(folder)):
        try:
            verify(path)
            return _load(path, identity)
        except IntegrityError as error:
            log.warning("event=checkpoint-damaged step=%s reason=%r", path.name, str(error))
    return None


def _load(path: Path, identity: dict[str, Any] | None) -> tuple[Progress, Parts]:
    told = read_json(path / "state.json")
    if identity is not None:
        refuse_other(path, identity, told.pop("identity"))
    progress = Progress(**{name: told[name] for name in Progress.__dataclass_fields__})
    if f"step-{progress.step:09d}" != path.name:
        raise IntegrityError(f"{path} holds step {progress.step}")
    return progress, {part: read_part(path, part) for part in sorted({_part_of(file) for file in _files(path)})}


def read_part(path: Path, part: str) -> "dict[str, Tensor]":
    """The whole tensors of a part of a checkpoint; raises IntegrityError where files are missing or mixed."""
    try:
        return joined([_open(file) for file in _files(path) if _part_of(file) == part])
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}") from error


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors"))


def _part_of(file: Path) -> str:
    return file.name.partition(".")[0]


def _open(path: Path) -> "tuple[Places, dict[str, Tensor]]":
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        told = json.loads((file.metadata() or {}).get(HEADER, "{}"))
        if f"step-{told.get('step', -1):09d}" != path.parent.name:
            raise IntegrityError(f"{path.name} is of another step: {told.get('step')}")
        places = {name: (start, tuple(shape)) for name, (start, shape) in told["pieces"].items()}
        return places, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
