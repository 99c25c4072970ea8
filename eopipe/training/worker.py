"""The program that torchrun starts on every rank: `python -m eopipe.training.worker JOB`."""

import logging
import os
import signal
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.errors import PreemptedError
from eopipe.launch.failures import STATUS, Failure, classify, note, noted
from eopipe.launch.world import RegroupedError, Stop, agent, attempt, die_with_parent, end, join
from eopipe.training_job import Job, read_job

if TYPE_CHECKING:
    from eopipe.training.loop import Loop

log = logging.getLogger("eopipe")
# An agent knows by then that a node came or went.
REGROUP_S = 20.0
LAST_WORDS_S = 3.0


def main() -> int:
    """Train; leave in status.json why it ended, since torchrun reports 1 for everything."""
    die_with_parent(agent())
    stop = Stop()
    stop.listen()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)
    job = read_job(Path(sys.argv[1]))
    before = noted(job.state / STATUS)
    if before and before.final and before.token == job.token:
        # Another node met what no new try can heal.
        return _give_up(before)
    loop: list[Loop] = []
    try:
        _train(job, stop, loop)
    except RegroupedError:
        stop.await_agent(REGROUP_S)
        return PreemptedError.code
    except Exception as error:  # noqa: BLE001 - every error is told in status.json
        return _failed(error, job, stop, loop[0] if loop else None)
    return 0


def _train(job: Job, stop: Stop, made: "list[Loop]") -> None:
    world = join(job.device, job.timeout_s, job.settings.threads)
    # Torch is loaded by now; the loop needs it at import.
    from eopipe.training.loop import Loop

    made.append(Loop(job, world, stop))
    # A reader that hangs may not hear that its worker is gone.
    with closing(made[0].feed):
        made[0].run()


def _failed(error: Exception, job: Job, stop: Stop, loop: "Loop | None") -> int:
    found = classify(error, job.state)
    if loop:
        # What is being written is worth keeping; a second failure says nothing new, and a lost worker writes nothing.
        with suppress(Exception):
            loop.keeper.finish(within_s=LAST_WORDS_S)
    step = loop.now.step if loop else 0
    told = replace(found, step=step, token=job.token, attempt=attempt(), signal=stop.number)
    if found.kind in {"bug", "memory", "reader"}:
        log.error("event=failed kind=%s step=%d", found.kind, step, exc_info=error)
    told = note(job.state / STATUS, told)
    if told.kind == "lost" and job.settings.nodes != "1":
        stop.await_agent(REGROUP_S)
    if told.final:
        return _give_up(told)
    log.warning("event=failed kind=%s step=%d reason=%r", told.kind, step, told.reason)
    return told.code


def _give_up(failure: Failure) -> int:
    """End the agent too: it would start a group that is bound to fail again."""
    if agent():
        os.kill(agent(), signal.SIGTERM)
    return failure.code


if __name__ == "__main__":
    end(main())
