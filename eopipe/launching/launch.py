"""Start torchrun with the right geometry, pass signals on, and tell how it ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from eopipe.errors import EopipeError, PreemptedError
from eopipe.launching.agent import HANDLED, LAUNCHER, LOST, STOP_WITHIN_S
from eopipe.launching.failures import STATUS, check_room, noted
from eopipe.launching.group import Seat, interfaces, verdict
from eopipe.launching.job import JOB
from eopipe.launching.meeting import LISTENING, MET
from eopipe.launching.rendezvous import Geometry
from eopipe.launching.signals import LEAVES, SIGNALS


def command(job: Path, geometry: Geometry, token: int = 0) -> list[str]:
    """The agent's line on a node."""
    torchrun = geometry.words()
    # By default the agent dies of SIGUSR1 and leaves its workers behind.
    handled = ",".join(number.name for number in HANDLED)
    torchrun += [f"--signals-to-handle={handled}", f"--shutdown-timeout={STOP_WITHIN_S}"]
    # It would leave a folder in the temporary directory otherwise.
    torchrun.append(f"--log-dir={job.parent / 'logs'}")
    agent = [sys.executable, "-m", "eopipe.launching.agent", str(job.parent / STATUS), str(token)]
    return [*agent, *torchrun, "-m", "eopipe.training.worker", str(job)]


def launch(seat: Seat, geometry: Geometry, threads: int, where: dict[str, str]) -> None:
    """Run a training to its end, on the copies that its data has here.

    Raises the error that the workers left in status.json.
    """
    environment = os.environ | {
        LAUNCHER: str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        # cuBLAS is deterministic only with a fixed workspace.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # Restarted ranks would read stale addresses from a shared store (torch 2.13, gloo).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        MET: str(seat.path),
        LEAVES: str(int(seat.may_leave)),
    }
    environment |= interfaces(geometry) | where
    sockets = [seat.listening.fileno()] if seat.listening else []
    environment[LISTENING] = "".join(map(str, sockets))
    line, status = command(seat.state / JOB, geometry, seat.meeting.token), seat.state / STATUS
    with _forwarding() as (caught, agents):
        agent = subprocess.Popen(line, env=environment, pass_fds=sockets)
        agents.append(agent)
        if seat.listening:
            # The agent's copy is the only one, so that nobody listens when it is gone.
            seat.listening.close()
        if caught:
            agent.send_signal(caught[0])
        code = agent.wait()
        if not seat.first and not caught and code in (0, 1, LOST):
            return verdict(seat, patient=code == 0)
    return _report(code, status, caught)


@contextmanager
def _forwarding() -> Iterator[tuple[list[int], list["subprocess.Popen[bytes]"]]]:
    """Pass the first signal on to the agents that are there; the second adds nothing."""
    caught: list[int] = []
    agents: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        for agent in agents if len(caught) == 1 else []:
            agent.send_signal(number)

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        yield caught, agents
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(code: int, status: Path, caught: list[int]) -> None:
    failure = noted(status)
    if failure and caught and not failure.final:
        # It has healed; what ends this node now is the signal.
        failure = None
    if code == 0 and not (failure and failure.final):
        return
    if not failure:
        check_room(status)
    stopped = not failure or failure.code == PreemptedError.code
    if stopped and signal.SIGINT in (*caught, failure.signal if failure else -code):
        raise KeyboardInterrupt
    if failure:
        raise failure.error()
    if caught or code < 0 or code == PreemptedError.code:
        raise PreemptedError("stopped from outside, what was saved before is kept; run the same command again")
    if code == LOST:
        raise PreemptedError("the other nodes are gone or have not come; run the same command again to go on")
    raise EopipeError(f"the training workers failed (torchrun ended with {code}); the log above says why")
