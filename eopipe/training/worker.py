"""The program of every rank: `python -m eopipe.training.worker JOB`, started by torchrun's agent."""

import logging
import os
import signal
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.errors import PreemptedError, model_code_error
from eopipe.launch.failures import STATUS, Failure, classify, read_failure, record_failure
from eopipe.launch.world import (
    StopRequest,
    WorldChangedError,
    agent_pid,
    die_with_parent,
    exit_now,
    join_world,
    restart_count,
)
from eopipe.processes import keep_freed_memory
from eopipe.telemetry.progress import log_to_stderr
from eopipe.training_job import Job, read_job

if TYPE_CHECKING:
    from eopipe.training.loop import TrainingLoop

log = logging.getLogger("eopipe")
# By then an agent has noticed that a node joined or left.
AGENT_NOTICES_S = 20.0
LAST_SAVE_S = 3.0


def main() -> int:
    """Train; leave in `status.json` why it ended, since torchrun reports 1 for everything."""
    die_with_parent(agent_pid())
    keep_freed_memory()
    stop = StopRequest()
    stop.listen()
    log_to_stderr()
    job = read_job(Path(sys.argv[1]))
    earlier = read_failure(job.state / STATUS)
    if earlier and earlier.final and earlier.token == job.token:
        # Another node met what no new try can heal.
        return _end_agent(earlier)
    loops: list[TrainingLoop] = []
    try:
        _train(job, stop, loops)
    except WorldChangedError:
        stop.await_agent(AGENT_NOTICES_S)
        return PreemptedError.code
    except Exception as error:  # noqa: BLE001 - every error is reported in status.json
        return _report(error, job, stop, loops[0] if loops else None)
    return 0


def _train(job: Job, stop: StopRequest, loops: "list[TrainingLoop]") -> None:
    world = join_world(job.knobs.device, job.knobs.timeout_s, job.settings.threads)
    # Torch is loaded by now; the loop needs it at import.
    from eopipe.training.loop import TrainingLoop

    loop = TrainingLoop(job, world, stop)
    loops.append(loop)
    # A data-loader worker that hangs may not notice that its rank ended.
    with closing(loop.loader):
        loop.run()


def _report(error: Exception, job: Job, stop: StopRequest, loop: "TrainingLoop | None") -> int:
    """Write the failure to `status.json`; gives the exit code."""
    failure = classify(error, job.state)
    if loop:
        # A checkpoint that is being written is worth keeping; a second failure says nothing new.
        with suppress(Exception):
            loop.checkpoints.wait(within_s=LAST_SAVE_S)
    step = loop.progress.step if loop else 0
    if in_model := model_code_error(error):
        log.error("event=model_failed step=%d\n  %s", step, "\n  ".join(in_model.frames))
    elif failure.kind in {"bug", "memory", "reader"}:
        log.error("event=failed kind=%s step=%d", failure.kind, step, exc_info=error)
    failure = replace(failure, step=step, token=job.token, attempt=restart_count(), signal=stop.signal_number)
    failure = record_failure(job.state / STATUS, failure)
    if failure.kind == "lost" and job.settings.nodes != "1":
        stop.await_agent(AGENT_NOTICES_S)
    if failure.final:
        return _end_agent(failure)
    log.warning("event=failed kind=%s step=%d reason=%r", failure.kind, step, failure.reason)
    return failure.code


def _end_agent(failure: Failure) -> int:
    """End the agent too: it would start a group that is bound to fail again."""
    if agent_pid():
        os.kill(agent_pid(), signal.SIGTERM)
    return failure.code


if __name__ == "__main__":
    exit_now(main())
