"""A training from its inputs to its published model: check, launch, publish."""

import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eopipe.errors import UsageError
from eopipe.models import Architecture
from eopipe.models.trained import Trained, write_trained
from eopipe.publish import digest, publish, read_json
from eopipe.samples.audit import check_statistics
from eopipe.samples.chips import Normaliser, pair
from eopipe.samples.sampling import scenes_of
from eopipe.samples.splits import read_split
from eopipe.samples.statistics import normaliser, read_statistics
from eopipe.training.checkpoint import steps
from eopipe.training.job import Job, Settings
from eopipe.training.launch import launch, lease


@dataclass(frozen=True)
class Sources:
    """The inputs of a training."""

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    chips: Path
    statistics: Path


def run(sources: Sources, model: Path, settings: Settings, room: Path, knobs: dict[str, Any]) -> None:
    """Train in a state folder that is keyed by inputs and settings, then publish the model."""
    pairs = pair(sources.tiles, sources.labels)
    split = read_split(sources.chips)
    scenes_of(split, pairs)
    told = read_statistics(sources.statistics)
    check_statistics(told, split, [image for image, _ in pairs])
    state = (room / key(sources, settings)).resolve()
    with lease(state):
        job = make_job(sources, state, split, normaliser(told, pairs[0][0].names), settings, knobs)
        job.write(state / "job.json")
        launch(state / "job.json", state, settings.processes, settings.threads)
        _publish(model, job, pairs[0][1].names, settings)
    # The model is published: a later run of the same training starts afresh and gives the same.
    shutil.rmtree(state)
    with suppress(OSError):
        room.rmdir()


def key(sources: Sources, settings: Settings) -> str:
    """A name for the state of this training: other data or settings never resume it."""
    told = {
        "tiles": sorted(digest(p) for p in sources.tiles),
        "labels": sorted(digest(p) for p in sources.labels),
        "chips": digest(sources.chips),
        "statistics": digest(sources.statistics),
        "settings": asdict(settings),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def make_job(
    sources: Sources,
    state: Path,
    split: dict[str, Any],
    normalise: Normaliser,
    settings: Settings,
    knobs: dict[str, Any],
) -> Job:
    """Check what can be checked before torchrun starts."""
    pairs = pair(sources.tiles, sources.labels)
    bands, classes = pairs[0][0].names, pairs[0][1].names
    architecture = Architecture(settings.architecture, len(bands), len(classes), settings.width, settings.depth)
    architecture.build()
    if split["chip"] % architecture.factor:
        raise UsageError(
            f"chips of {split['chip']} pixels cannot be halved {settings.depth} times; "
            f"choose split.chip as a multiple of {architecture.factor}, or a smaller train.depth"
        )
    job = Job(
        tiles=tuple(str(p.resolve()) for p in sources.tiles),
        labels=tuple(str(p.resolve()) for p in sources.labels),
        chips=str(sources.chips.resolve()),
        state=str(state),
        architecture=architecture,
        bands=bands,
        normaliser=normalise,
        chip=split["chip"],
        settings=settings,
        **knobs,
    )
    # A reader tells which scene lacks a band.
    job.reader()
    return job


def _publish(model: Path, job: Job, classes: tuple[str, ...], settings: Settings) -> None:
    from safetensors.torch import load_file

    last = steps(Path(job.state))[-1]
    trained = Trained(job.architecture, job.bands, classes, job.normaliser, job.chip)
    history = read_json(last / "state.json")["history"]
    with publish(model, folder=True) as draft:
        write_trained(draft, trained, load_file(last / "model.safetensors"), history, asdict(settings))
