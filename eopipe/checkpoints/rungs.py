"""The checkpoint in the folder of a model whose training pauses: another training continues from it.

It holds all that a continuation needs, as the same bytes in each run: no times, no paths, no fencing token.
"""

import logging
import shutil
from pathlib import Path
from typing import Any

from eopipe.checkpoints.checkpoint import best, refuse_other, steps
from eopipe.checkpoints.manager import IDENTITY
from eopipe.errors import BadInputError, UsageError
from eopipe.publish import MANIFEST, files, publish, verify, write_manifest
from eopipe.telemetry.journal import METRICS, published_lines
from eopipe.text_files import read_json, write_json

log = logging.getLogger("eopipe")
# Its name in the folder of the model.
CHECKPOINT = "checkpoint"


def write_checkpoint(folder: Path, state: Path, *, with_best: bool) -> None:
    """Copy the newest checkpoint of a state folder, with the best one too where that may become the model."""
    newest = steps(state)[-1]
    for path in sorted({newest, (best(state) if with_best else None) or newest}):
        copy = folder / path.name
        copy_payload(path, copy)
        # Tokens count the starts of a training, and so differ between runs.
        write_json(copy / "state.json", read_json(copy / "state.json") | {"token": 0})
        write_manifest(copy)
    shutil.copyfile(state / IDENTITY, folder / IDENTITY)
    (folder / METRICS).write_bytes(published_lines(state / METRICS))


def is_ended(continued: Path | None, promoted: Path | None) -> bool:
    """Whether a file of those that may continue, as {"promoted": [names]}, does not name a model folder.

    Raises UsageError for the file without a folder, BadInputError where it is another file, and for a folder that is to
    continue without a checkpoint.
    """
    if promoted and not continued:
        raise UsageError("--promoted names those that may continue; give the model folder as --continued too")
    if not continued:
        return False
    if promoted and continued.name not in _promoted_names(promoted):
        if not (continued / MANIFEST).is_file():
            raise BadInputError(f"{continued} is not a model folder: it does not have a {MANIFEST}")
        return True
    find_checkpoint(continued)
    return False


def _promoted_names(path: Path) -> list[str]:
    document = read_json(path)
    names = document.get("promoted") if isinstance(document, dict) else None
    if not isinstance(names, list):
        raise BadInputError(f'{path} does not name those that may continue; it must be JSON as {{"promoted": [names]}}')
    return names


def publish_ended(continued: Path, model: Path) -> None:
    """Copy a model folder without its checkpoint, since its training does not continue."""
    with publish(model, folder=True) as draft:
        copy_payload(continued, draft, without=CHECKPOINT)
    log.info("event=not_promoted model=%s", continued.name)


def find_checkpoint(model: Path) -> Path:
    """The checkpoint in a model folder. Raises BadInputError where there is none."""
    folder = model / CHECKPOINT
    if not (folder / IDENTITY).is_file() or not steps(folder):
        raise BadInputError(
            f"{model} does not have a {CHECKPOINT} to continue from; give the model of a training with --until that "
            "was not ended"
        )
    return folder


def adopt_checkpoint(model: Path, state: Path, identity: dict[str, Any]) -> None:
    """Copy the checkpoint in a model folder into a state folder, unless that has one as new already.

    Raises BadInputError, with what differs, for the checkpoint of another training, IntegrityError for a damaged one.
    """
    folder = find_checkpoint(model)
    refuse_other(folder / IDENTITY, identity, read_json(folder / IDENTITY))
    checkpoints, present = steps(folder), {path.name for path in steps(state)}
    if present and max(present) >= checkpoints[-1].name:
        return
    with publish(state / METRICS) as draft:
        shutil.copyfile(folder / METRICS, draft)
    # The newest one is the last: after a kill in between the rest follows.
    for path in checkpoints:
        if path.name not in present:
            verify(path)
            with publish(state / path.name, folder=True) as draft:
                copy_payload(path, draft)


def copy_payload(source: Path, target: Path, without: str = "") -> None:
    """Copy the files of a published folder but for its manifest, and for a folder `without` in it."""
    for file in files(source):
        path = file.relative_to(source)
        if path.parts[0] != without:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            # Without the mode: an engine may have made its files read-only.
            shutil.copyfile(file, target / path)
