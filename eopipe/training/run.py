"""A training from its inputs to its published model: check, launch, publish."""

import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints.checkpoint import best, checkpoint_name, other_states, read_part, refuse_other, steps
from eopipe.checkpoints.manager import CHECKPOINT, IDENTITY, adopt_checkpoint, is_ended, publish_ended, write_checkpoint
from eopipe.contract import stage
from eopipe.errors import UsageError
from eopipe.launch.environment import ClusterEnvironment, check_step, detect_environment, parse_nodes
from eopipe.launch.failures import STATUS
from eopipe.launch.launch import Membership, check_allocation, join_group, launch, run_on_all_nodes
from eopipe.launch.lease import fence, hold_lease
from eopipe.launch.scratch import local_copies
from eopipe.models.model_files import copy_files, libraries, module_of
from eopipe.models.model_folder import TrainedModel, write_model_folder
from eopipe.publish import publish
from eopipe.tasks import TASKS
from eopipe.telemetry.follow import follower
from eopipe.telemetry.journal import METRICS, published_lines
from eopipe.text_files import read_json, write_json
from eopipe.train_options import PIXEL_MODELS
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training.model_checks import fixed_window
from eopipe.training_job import JOB, Job, Knobs, Settings

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("eopipe")
# Trees of a forest that is averaged with a network: with more of them a map takes longer and the mean hardly changes.
AVERAGED_TREES = 25


def run(values: Mapping[str, Any]) -> None:
    """Train in a state folder that is keyed by inputs and settings, then publish the model.

    `values` are the arguments of a call of the stage `train`.
    """
    is_fitted = values["architecture"] in PIXEL_MODELS
    # Behind a rung there is nothing left to fit.
    if (is_fitted and values["continued"]) or is_ended(values["continued"], values["promoted"]):
        publish_ended(values["continued"], values["model"])
        return
    values = stage("train").with_derived(values)
    if is_fitted:
        from eopipe.training.pixels import train_pixel_model

        train_pixel_model(TrainingData.open(TrainingInputs.of(values)), Settings.of(values), values["model"])
        return
    nodes = parse_nodes(values["nodes"])
    if nodes.maximum > 1 and run_on_all_nodes(values):
        return
    if nodes.maximum == 1:
        check_allocation(nodes)
        check_step(os.environ, nodes)
    model, settings, knobs = values["model"], Settings.of(values), Knobs.of(values)
    data = TrainingData.open(TrainingInputs.of(values))
    state_root = knobs.state or model.parent / f".{model.name}.state"
    job = data.job(settings, knobs, state_root, knobs.views or model.parent / f"{model.name}.views")
    if values["until"]:
        job = job.replace(pause=job.length.pause(values["until"]))
    if values["continued"]:
        job = job.replace(continued=values["continued"].resolve())
    if nodes.maximum == 1:
        train_on_one_node(data, job, model)
    elif not train_on_many_nodes(data, job, model, detect_environment(os.environ, nodes, job.state.name)):
        return
    # The model is published: a later run of the same training starts afresh and gives the same.
    # Another node may still close its files there.
    shutil.rmtree(job.state, ignore_errors=nodes.maximum > 1)
    with suppress(OSError):
        state_root.rmdir()


def train_on_one_node(data: TrainingData, job: Job, model: Path) -> None:
    """Hold the lease, run the workers of this node, publish the model."""
    with _copies(job) as environment, hold_lease(job.state) as token:
        prepare_state(data, job.replace(token=token))
        _launch(job, token, environment)
        fence(job.state, token)
        _publish(model, job, data)


def train_on_many_nodes(data: TrainingData, job: Job, model: Path, cluster: ClusterEnvironment) -> bool:
    """Run the workers of this node with the others; whether this node is the first and published the model."""
    with _copies(job) as environment, join_group(job.state, cluster) as member:
        token = member.endpoint.token
        if member.is_first:
            prepare_state(data, job.replace(token=token))
            member.publish_endpoint()
        _launch(job, token, environment, member)
        if member.is_first:
            fence(job.state, token)
            _publish(model, job, data)
            member.publish_done()
        return member.is_first


def _copies(job: Job) -> AbstractContextManager[Mapping[str, str]]:
    """Copies of the stores on a disk of this node where `scratch` names one; gives the variables that point to them."""
    return local_copies(job.knobs.scratch, job.stores) if job.knobs.scratch else nullcontext({})


def _launch(job: Job, token: int, environment: Mapping[str, str], member: Membership | None = None) -> None:
    """Run the workers of this node; those who track the training follow its journal beside the first node."""
    is_tracked = job.knobs.track and (member is None or member.is_first)
    with follower(job.knobs.track, job.state, job.views) if is_tracked else nullcontext():
        launch(
            job.state / JOB,
            token,
            processes=job.settings.processes,
            restarts=job.knobs.restarts,
            threads=job.settings.threads,
            wait_s=job.knobs.timeout_s,
            environment=environment,
            member=member,
        )


def prepare_state(data: TrainingData, job: Job) -> None:
    """Write what the workers read, with the checkpoint of a training that is continued.

    Raises BadInputError, with what differs, if the state or the checkpoint is another training's, UsageError where it
    is beyond the pause.
    """
    identity, path = data.identity(job), job.state / IDENTITY
    if path.exists():
        refuse_other(path, identity, read_json(path))
    for folder, difference in other_states(job.state.parent, job.state, identity):
        log.warning("event=other_state folder=%s differs=%r", folder.name, difference)
    with publish(path) as draft:
        write_json(draft, identity)
    if job.continued:
        adopt_checkpoint(job.continued, job.state, identity)
    _refuse_later_steps(job)
    (job.state / STATUS).unlink(missing_ok=True)
    # A worker that starts again later must not read files that were edited meanwhile.
    copies = copy_files(job.architecture.files, job.state)
    job.replace(architecture=replace(job.architecture, files=copies)).write(job.state / JOB)


def _refuse_later_steps(job: Job) -> None:
    """Raise UsageError where the state is beyond the pause: its model would be of more steps than asked for."""
    checkpoints = steps(job.state)
    if job.pause and checkpoints and checkpoints[-1].name > checkpoint_name(job.pause):
        raise UsageError(
            f"--until pauses after step {job.pause}, but {checkpoints[-1]} is later; give a larger share, or another "
            "--state"
        )


def _averaged(
    trained: TrainedModel, weights: "dict[str, Tensor]", job: Job, data: TrainingData
) -> "tuple[TrainedModel, dict[str, Tensor]]":
    """The ensemble of a network and the models of pixels that it is averaged with."""
    from eopipe.models.networks import ensemble_weights
    from eopipe.training.pixels import fit_pixel_model

    others = [replace(job.settings, architecture=kind, arguments=()) for kind in job.settings.fitted_beside]
    fitted = [fit_pixel_model(data, other, job.target, job.loss_weights, AVERAGED_TREES) for other in others]
    kinds = trained.architecture, *(other.trained.architecture for other in fitted)
    tensors = ensemble_weights([weights, *(other.tensors for other in fitted)])
    return replace(trained, members=len(kinds), kinds=kinds), tensors


def _publish(model: Path, job: Job, data: TrainingData) -> None:
    from eopipe.models.build import merge_lora_adapters

    settings = job.settings
    copies = tuple(replace(file, path=(job.state / file.name).absolute()) for file in job.architecture.files)
    architecture = replace(job.architecture, files=copies)
    last = steps(job.state)[-1]
    chosen = (best(job.state) if settings.patience else None) or last
    weights = merge_lora_adapters(read_part(chosen, "ema" if settings.ema else "model"))
    trained = data.describe_model(architecture, settings, job.target)
    trained = replace(trained, **{name: getattr(settings, name) for name in TASKS[settings.task].options})
    if module_of(architecture.name):
        trained = replace(trained, window=fixed_window(architecture.build(), architecture, job.chip))
    if settings.fitted_beside:
        trained, weights = _averaged(trained, weights, job, data)
    progress = read_json(last / "state.json")
    # Without virtual shards another world gives other weights.
    worlds = [] if settings.deterministic or len(progress["worlds"]) == 1 else progress["worlds"]
    with publish(model, folder=True) as draft:
        (draft / METRICS).write_bytes(published_lines(job.state / METRICS))
        copy_files(copies, draft)
        software = libraries(architecture.name, data.inputs.model_files)
        write_model_folder(draft, trained, weights, progress["history"], job.deciding(), worlds, data.extent, software)
        if job.pause:
            # After the item, which does not list it: it is nothing that a user of the model needs.
            write_checkpoint(draft / CHECKPOINT, job.state, with_best=settings.patience > 0)
