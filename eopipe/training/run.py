"""A training from its inputs to its published model: check, launch, publish."""

import hashlib
import json
import logging
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
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
from eopipe.models import BUILT_IN, Architecture
from eopipe.models.trained import Trained, write_trained
from eopipe.publish import digest, publish, read_json, write_json
from eopipe.samples.audit import check_statistics
from eopipe.samples.chips import Normaliser, pair
from eopipe.samples.cutting import sources_of
from eopipe.samples.sampling import scenes_of
from eopipe.samples.splits import read_split
from eopipe.samples.statistics import normaliser, read_statistics
from eopipe.training.initial import check_initial, prepare
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
    settings, split, normalise = read_inputs(sources, settings)
    state = (room / key(sources, settings)).resolve()
    with lease(state) as token:
        job = make_job(sources, state, split, normalise, settings, knobs | {"token": token})
        claim(sources, job)
        job.write(state / "job.json")
        line = command(state / "job.json", settings.processes, token, job.restarts)
        launch(line, state / STATUS, settings.threads)
        fence(state, token)
        _publish(model, job, pairs[0][1].names, settings)
    # The model is published: a later run of the same training starts afresh and gives the same.
    shutil.rmtree(state)
    with suppress(OSError):
        room.rmdir()


def read_inputs(sources: Sources, settings: Settings) -> tuple[Settings, dict[str, Any], Normaliser]:
    """What the inputs tell a training: settings with the weights of the classes, the split, how bands are normalised.

    Raises BadInputError where the inputs do not belong together.
    """
    pairs = pair(sources.tiles, sources.labels)
    split = read_split(sources.chips)
    scenes_of(split, pairs)
    told = read_statistics(sources.statistics)
    check_statistics(told, split, [image for image, _ in pairs])
    settings = replace(settings, weights=class_weights(settings, split, pairs[0][1].names))
    return settings, split, normaliser(told, pairs[0][0].names)


def class_weights(settings: Settings, split: dict[str, Any], classes: tuple[str, ...]) -> tuple[float, ...]:
    """How much a pixel of each class counts, if not all alike."""
    from eopipe.training.losses import balanced

    return balanced(split["pixels"]["train"], classes) if settings.class_weights == "balanced" else ()


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
    if settings.architecture not in BUILT_IN:
        from eopipe.models.making import try_out

        try_out(module, len(bands), len(classes), split["chip"])
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


def _publish(model: Path, job: Job, classes: tuple[str, ...], settings: Settings) -> None:
    from safetensors.torch import load_file

    from eopipe.models.lora import merged

    last = steps(Path(job.state))[-1]
    chosen = (best(Path(job.state)) if settings.patience else None) or last
    weights = merged(load_file(chosen / f"{'ema' if settings.ema else 'model'}.safetensors"))
    trained = Trained(job.architecture, job.bands, classes, job.normaliser, job.chip)
    history = read_json(last / "state.json")["history"]
    with publish(model, folder=True) as draft:
        write_trained(draft, trained, weights, history, settings.deciding())
        (draft / METRICS).write_bytes(payload(Path(job.state) / METRICS))
