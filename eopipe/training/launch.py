"""Start torchrun with the right geometry, pass signals on, and tell how it ended."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from eopipe.errors import BY_CODE, EopipeError, PreemptedError, UsageError
from eopipe.publish import read_json
from eopipe.training.signals import SIGNALS
from eopipe.training.world import die_with_parent

STOP_WITHIN_S = 20
FORWARDED = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"


@contextmanager
def lease(state: Path) -> Iterator[None]:
    """Hold a training for this process alone; the lock dies with the process, however it ends."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lease").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"this training is already running (process {file.read()}); wait for it or stop it"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def command(job: Path, processes: int) -> list[str]:
    """The torchrun line of one node."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    # By default the agent dies of SIGUSR1 and leaves its workers behind.
    torchrun += [f"--signals-to-handle={FORWARDED}", f"--shutdown-timeout={STOP_WITHIN_S}"]
    # It would leave a folder in the temporary directory otherwise.
    torchrun.append(f"--log-dir={job.parent / 'logs'}")
    return [*torchrun, "-m", "eopipe.training.worker", str(job)]


def launch(job: Path, state: Path, processes: int, threads: int) -> None:
    """Run a training to its end; raises the error that the workers left in status.json."""
    status = state / "status.json"
    status.unlink(missing_ok=True)
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        # cuBLAS is deterministic only with a fixed workspace.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # Restarted ranks would read stale addresses from a shared store (torch 2.13, gloo).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    # This process has one thread, so a function between fork and exec is safe.
    line = command(job, processes)
    agent = subprocess.Popen(line, env=environment, preexec_fn=die_with_parent)  # noqa: PLW1509
    caught: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        agent.send_signal(number)

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        code = agent.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _report(code, status, caught)


def _report(code: int, status: Path, caught: list[int]) -> None:
    told: dict[str, Any] = read_json(status) if status.exists() else {"code": code, "reason": ""}
    if code == 0 and told["code"] == 0:
        return
    kind = BY_CODE.get(told["code"])
    if kind is PreemptedError and signal.SIGINT in caught:
        raise KeyboardInterrupt
    if kind:
        raise kind(told["reason"])
    if caught:
        raise PreemptedError("stopped before the first step; run the same command again")
    raise EopipeError(f"the training workers failed (torchrun ended with {code}); the log above says why")
