"""A training from its inputs to its published model: check, launch, publish."""

import hashlib
import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from eopipe.checkpoints.checkpoint import best, read_part, steps
from eopipe.checkpoints.identity import other_states, refuse_other
from eopipe.checkpoints.manager import IDENTITY
from eopipe.chips.audit import check_statistics
from eopipe.chips.chips import Normaliser, pair_stores, unit_of
from eopipe.chips.make_split import check_scenes
from eopipe.chips.splits import read_split
from eopipe.chips.statistics import band_normaliser, read_statistics
from eopipe.contract import stage
from eopipe.errors import UsageError
from eopipe.launch.environment import locate, nodes_of
from eopipe.launch.failures import STATUS
from eopipe.launch.launch import launch
from eopipe.launch.lease import fence
from eopipe.launch.membership import Seat, seat
from eopipe.launch.scratch import copies
from eopipe.loader.chip_reader import sources_of
from eopipe.models import Architecture
from eopipe.models.model_folder import Trained, write_trained
from eopipe.publish import digest, publish, read_json, write_json
from eopipe.stac.write import extent_of
from eopipe.telemetry.journal import METRICS, payload
from eopipe.tiles.store import Tiles
from eopipe.training.data import settled
from eopipe.training.init_weights import check_initial, check_source, prepare, rehearse
from eopipe.training_job import JOB, Job, Settings

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class Sources:
    """The inputs of a training."""

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    chips: Path
    statistics: Path
    init: Path | None = None


def run(
    sources: Sources, model: Path, settings: Settings, room: Path, knobs: dict[str, Any], scratch: str | None = None
) -> None:
    """Train in a state folder that is keyed by inputs and settings, then publish the model."""
    if sources.init:
        check_source(sources.init)
    pairs = pair_stores(sources.tiles, sources.labels)
    settings, split, normalise = read_inputs(sources, settings)
    state = (room / key(sources, settings)).resolve()
    place = locate(os.environ, nodes_of(settings.nodes), state.name)
    job = make_job(sources, state, split, normalise, settings, knobs)
    stores = {"tiles": job.tiles, "labels": job.labels}
    with copies(scratch, stores) as where, seat(state, place) as mine:
        if mine.first:
            _invite(sources, replace(job, token=mine.meeting.token), mine)
        launch(
            state / JOB, mine, mine.geometry(settings.processes, job.restarts, job.timeout_s), settings.threads, where
        )
        if not mine.first:
            return
        fence(state, mine.meeting.token)
        _publish(model, job, pairs[0][1])
        mine.done()
    # The model is published: a later run of the same training starts afresh and gives the same.
    # Another node may still close its files there.
    shutil.rmtree(state, ignore_errors=nodes_of(settings.nodes).most > 1)
    with suppress(OSError):
        room.rmdir()


def _invite(sources: Sources, job: Job, mine: Seat) -> None:
    """Make ready what the workers read, then let the other nodes in."""
    state = Path(job.state)
    claim(sources, job)
    (state / STATUS).unlink(missing_ok=True)
    job.write(state / JOB)
    mine.open()


def read_inputs(sources: Sources, settings: Settings) -> tuple[Settings, dict[str, Any], Normaliser]:
    """What the inputs tell a training: settings with what the labels decide, the split, how bands are normalised.

    Raises BadInputError where the inputs do not belong together.
    """
    pairs = pair_stores(sources.tiles, sources.labels)
    split = read_split(sources.chips)
    check_scenes(split, pairs)
    told = read_statistics(sources.statistics)
    check_statistics(told, split, [image for image, _ in pairs])
    settings = settled(settings, split, pairs, told, sources.statistics)
    return settings, split, band_normaliser(told, pairs[0][0].names)


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
    pairs = pair_stores(sources.tiles, sources.labels)
    bands, classes = pairs[0][0].names, pairs[0][1].names
    if wrong := settings.conflicts():
        raise UsageError("; ".join(wrong))
    sizes = (len(bands), len(classes), settings.width, settings.depth)
    architecture = Architecture(settings.architecture, *sizes, bands, settings.arguments)
    module = prepare(architecture.build(), settings)
    if settings.patience and not len(split["samples"]["val"]):
        raise UsageError("train.patience waits for a better epoch, but the split has no val chips; set it to 0")
    if sources.init:
        check_initial(sources.init, architecture, bands)
    if split["chip"] % architecture.factor:
        raise UsageError(
            f"chips of {split['chip']} pixels cannot be halved {settings.depth} times; "
            f"choose split.chip as a multiple of {architecture.factor}, or a smaller train.depth"
        )
    rehearse(module, architecture, split["chip"], settings.task)
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
    from eopipe.models.lora import merged

    settings = job.settings
    last = steps(Path(job.state))[-1]
    chosen = (best(Path(job.state)) if settings.patience else None) or last
    weights = merged(read_part(chosen, "ema" if settings.ema else "model"))
    what = (settings.task, settings.target, unit_of(labels))
    trained = Trained(job.architecture, job.bands, labels.names, job.normaliser, job.chip, *what)
    reached = read_json(last / "state.json")
    # Without virtual shards another world gives other weights.
    worlds = [] if settings.deterministic or len(reached["worlds"]) == 1 else reached["worlds"]
    with publish(model, folder=True) as draft:
        (draft / METRICS).write_bytes(payload(Path(job.state) / METRICS))
        seen = [Tiles(Path(path)) for path in job.tiles]
        place = extent_of(seen[0].grid, [tiles.attributes for tiles in seen])
        write_trained(draft, trained, weights, reached["history"], settings.deciding(), worlds, place)
