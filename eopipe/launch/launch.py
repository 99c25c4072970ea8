"""Run torchrun with the right geometry, and tell how it ended."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eopipe.errors import EopipeError, PreemptedError
from eopipe.launch.endpoint import LISTENING, MET
from eopipe.launch.environment import Geometry
from eopipe.launch.failures import STATUS, check_room, noted
from eopipe.launch.membership import Seat, interfaces, verdict
from eopipe.launch.torchrun import STOP_WITHIN_S, Ended, StoppedError, listening, serve
from eopipe.launch.world import LEAVES, handled


def words(job: Path, geometry: Geometry) -> list[str]:
    """What torchrun is told on a node."""
    # By default the agent dies of SIGUSR1 and leaves its workers behind.
    heard = ",".join(number.name for number in handled())
    options = [*geometry.words(), f"--signals-to-handle={heard}", f"--shutdown-timeout={STOP_WITHIN_S}"]
    # It would leave a folder in the temporary directory otherwise.
    options.append(f"--log-dir={job.parent / 'logs'}")
    return [*options, "-m", "eopipe.training.worker", str(job)]


def launch(job: Path, seat: Seat, geometry: Geometry, threads: int, where: dict[str, str]) -> None:
    """Run a training to its end, on the copies that its data has here.

    Raises the error that the workers left in status.json.
    """
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        # cuBLAS is deterministic only with a fixed workspace.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # Restarted ranks would read stale addresses from a shared store (torch 2.13, gloo).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        MET: str(seat.path),
        LEAVES: str(int(seat.may_leave)),
        # torchrun's store takes it over.
        LISTENING: str(seat.listening.detach()) if seat.listening else "",
    }
    environment |= interfaces(geometry) | where
    status, line, stopped = seat.state / STATUS, words(job, geometry), 0
    ended: Ended = "failed"
    try:
        with listening(), _told(environment):
            ended = serve(line, status, seat.meeting.token)
            if not seat.first:
                verdict(seat, patient=ended == "done")
                return
    except StoppedError as error:
        stopped = error.number
    _report(ended, status, stopped)


@contextmanager
def _told(environment: Mapping[str, str]) -> Iterator[None]:
    """Give workers this environment; what torchrun adds to it is theirs too."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _report(ended: Ended, status: Path, stopped: int) -> None:
    failure = noted(status)
    if failure and stopped and not failure.final:
        # It has healed; what ends this node now is the signal.
        failure = None
    if ended == "done" and not stopped and not (failure and failure.final):
        return
    if not failure:
        check_room(status)
    if (not failure or failure.code == PreemptedError.code) and signal.SIGINT in (stopped, failure and failure.signal):
        raise KeyboardInterrupt
    if failure:
        raise failure.error()
    if stopped:
        raise PreemptedError("stopped from outside, what was saved before is kept; run the same command again")
    if ended == "lost":
        raise PreemptedError("the other nodes are gone or have not come; run the same command again to go on")
    raise EopipeError("the training workers failed; the log above says why")
