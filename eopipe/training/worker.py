"""The program that torchrun starts on every rank: `python -m eopipe.training.worker JOB`."""

import logging
import sys
from pathlib import Path

from eopipe.errors import EopipeError, is_full, no_space
from eopipe.training.job import read_job
from eopipe.training.signals import Stop
from eopipe.training.world import die_with_parent, join, leave


def main() -> int:
    """Train; leave the exit code in status.json, since torchrun reports 1 for everything."""
    die_with_parent()
    stop = Stop()
    stop.listen()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("eopipe").setLevel(logging.INFO)
    job = read_job(Path(sys.argv[1]))
    world = join(job.device, job.timeout_s, job.settings.threads)
    # Torch is loaded by now; the loop needs it at import.
    from eopipe.training.checkpoint import write_status
    from eopipe.training.loop import Loop

    failure: EopipeError | None = None
    try:
        Loop(job, world, stop).run()
    except EopipeError as error:
        failure = error
    except OSError as error:
        if not is_full(error):
            raise
        failure = no_space(Path(job.state))
    if world.first or failure:
        write_status(Path(job.state), failure)
    leave()
    return failure.code if failure else 0


if __name__ == "__main__":
    sys.exit(main())
