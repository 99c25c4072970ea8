"""A training from its inputs to its published model: check, launch, publish."""

import hashlib
import json
import logging
import shutil
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from eopipe.checkpoints.checkpoint import best, steps
from eopipe.checkpoints.identity import other_states, refuse_other
from eopipe.checkpoints.keeper import IDENTITY
from eopipe.contract import stage
from eopipe.errors import UsageError
from eopipe.launching.failures import STATUS
from eopipe.launching.job import Job, Settings
from eopipe.launching.launch import command, launch
from eopipe.launching.lease import fence, lease
from eopipe.models import Architecture
from eopipe.models.trained import Trained, write_trained
from eopipe.publish import digest, publish, read_json, write_json
from eopipe.samples.audit import check_statistics
from eopipe.samples.chips import Normaliser, pair, unit_of
from eopipe.samples.cutting import sources_of
from eopipe.samples.sampling import scenes_of
from eopipe.samples.splits import read_split
from eopipe.samples.statistics import normaliser, read_statistics
from eopipe.store import Tiles
from eopipe.training.initial import check_initial, prepare
from eopipe.training.targets import settled
from eopipe.watching.metrics import METRICS, payload

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class Sources:
    """The inputs of a training."""

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    chips: Path
    statistics: Path
    init: Path | None = None


def run(sources: Sources, model: Path, settings: Settings, room: Path, knobs: dict[str, Any]) -> None:
    """Train in a state folder that is keyed by inputs and settings, then publish the model."""
    pairs = pair(sources.tiles, sources.labels)
    split = read_split(sources.chips)
    scenes_of(split, pairs)
    told = read_statistics(sources.statistics)
    check_statistics(told, split, [image for image, _ in pairs])
    settings = settled(settings, split, pairs, told, sources.statistics)
    state = (room / key(sources, settings)).resolve()
    with lease(state) as token:
        job = make_job(sources, state, split, normaliser(told, pairs[0][0].names), settings, knobs | {"token": token})
        claim(sources, job)
        job.write(state / "job.json")
        line = command(state / "job.json", settings.processes, token, job.restarts)
        launch(line, state / STATUS, settings.threads)
        fence(state, token)
        _publish(model, job, pairs[0][1])
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
        "settings": settings.deciding(),
    }
    if sources.init:
        told["init"] = digest(sources.init)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def identity(sources: Sources, job: Job) -> dict[str, Any]:
    """All that decides the weights, by name, so that a difference can be told."""
    data: dict[str, Any] = {
        "tiles": {p.name: digest(p) for p in sources.tiles},
        "labels": {p.name: digest(p) for p in sources.labels},
        "chips": digest(sources.chips),
        "statistics": digest(sources.statistics),
        "init": digest(sources.init) if sources.init else None,
    }
    tensors = job.architecture.build().state_dict()
    told = {
        "data": data,
        "settings": job.settings.deciding(),
        "tensors": {name: list(value.shape) for name, value in tensors.items()},
        # The same settings give other weights with other code.
        "revision": {"eopipe": stage("train").revision, "torch": version("torch")},
    }
    return cast(dict[str, Any], json.loads(json.dumps(told)))


def claim(sources: Sources, job: Job) -> None:
    """Write down whose state a folder is. Raises BadInputError, with what differs, if it is another training's."""
    mine, path = identity(sources, job), Path(job.state) / IDENTITY
    if path.exists():
        refuse_other(path, mine, read_json(path))
    for other, what in other_states(Path(job.state).parent, Path(job.state), mine):
        log.warning("event=other-state folder=%s differs=%r", other.name, what)
    with publish(path) as draft:
        write_json(draft, mine)


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
    if wrong := settings.conflicts():
        raise UsageError("; ".join(wrong))
    sizes = (len(bands), len(classes), settings.width, settings.depth)
    architecture = Architecture(settings.architecture, *sizes, bands, settings.arguments)
    prepare(architecture.build(), settings)
    if settings.patience and not len(split["samples"]["val"]):
        raise UsageError("train.patience waits for a better epoch, but the split has no val chips; set it to 0")
    if sources.init:
        check_initial(sources.init, architecture, bands)
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
        init=str(sources.init.resolve()) if sources.init else None,
        **knobs,
    )
    # Tells which scene lacks a band.
    sources_of(pairs, bands)
    return job


def _publish(model: Path, job: Job, labels: Tiles) -> None:
    from safetensors.torch import load_file

    from eopipe.models.lora import merged

    settings = job.settings
    last = steps(Path(job.state))[-1]
    chosen = (best(Path(job.state)) if settings.patience else None) or last
    weights = merged(load_file(chosen / f"{'ema' if settings.ema else 'model'}.safetensors"))
    what = (settings.task, settings.target, unit_of(labels))
    trained = Trained(job.architecture, job.bands, labels.names, job.normaliser, job.chip, *what)
    history = read_json(last / "state.json")["history"]
    with publish(model, folder=True) as draft:
        write_trained(draft, trained, weights, history, settings.deciding())
        (draft / METRICS).write_bytes(payload(Path(job.state) / METRICS))
