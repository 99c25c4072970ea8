"""The world of a worker: rank, size, device, and the signals that ask it to stop; the only module that reads RANK."""

import ctypes
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from eopipe.processes import start_time
from eopipe.telemetry.timing import phase

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

PR_SET_PDEATHSIG = 1
# The Snakemake that starts a stage: its process id and start, and the machine and namespace where these are valid.
ENGINE = "EOPIPE_ENGINE"
# Every tool of CWL sets it.
TOOL_OF_CWL = "EOPIPE_VERSION"
BOOT, NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
# Signals that ask a training to stop, and those that an agent handles.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
AGENT_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGQUIT)
# By this an agent stops its workers to start them again in another world.
RESTART_SIGNAL = signal.SIGUSR2
# The process id of the agent; "1" where a node that is asked to stop leaves a group that continues.
AGENT_PID, LEAVES_GROUP = "EOPIPE_AGENT", "EOPIPE_LEAVES"
# What a worker adds to the sum over all workers to end the training: more than there are workers.
END_TRAINING = float(1 << 20)


class WorldChangedError(Exception):
    """The state is saved and this world ends; the training continues in another one."""


def handled_signals() -> tuple[signal.Signals, ...]:
    """Signals that stop a training here: under nohup not the one for a closed terminal."""
    return tuple(
        number for number in AGENT_SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    )


@dataclass
class StopRequest:
    """A request to stop, set by a signal, and what all workers have agreed to at the end of a step.

    Both are 0 to continue, 1 to stop for another world, END_TRAINING and more to end the training.
    """

    local: float = 0.0
    agreed: float = 0.0
    signal_number: int = 0

    def listen(self) -> None:
        """Handle the signals that ask a training to stop."""
        for number in (*STOP_SIGNALS, RESTART_SIGNAL):
            signal.signal(number, self._handle)

    @property
    def ends_training(self) -> bool:
        """Whether all have agreed to end the training, not only this world of it."""
        return self.agreed >= END_TRAINING

    def await_agent(self, seconds: float) -> None:
        """Wait for the agent's signal: a world that changed is not a failure, and the agent notices it by itself."""
        deadline = time.monotonic() + seconds
        while not self.local and time.monotonic() < deadline:
            time.sleep(0.05)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        is_restart = number == RESTART_SIGNAL
        leaves = is_restart or os.environ.get(LEAVES_GROUP) == "1"
        self.local = max(self.local, 1.0 if leaves else END_TRAINING)
        if not is_restart:
            self.signal_number = self.signal_number or number


@dataclass(frozen=True)
class World:
    """The rank of this worker, the number of workers, and the device on which this one computes."""

    rank: int
    size: int
    device: "torch.device"

    def sum(self, values: "Tensor") -> "Tensor":
        """Sum a tensor over all workers, in place."""
        import torch.distributed as dist

        with phase("communication"):
            # A process on its own has no group.
            if self.size > 1:
                dist.all_reduce(values)
        return values

    @property
    def is_first(self) -> bool:
        """Whether this worker writes files and logs."""
        return self.rank == 0


def join_world(device: str, timeout_s: float, threads: int) -> World:
    """Join the process group that torchrun set up; gloo on CPU, NCCL on GPU."""
    import torch.distributed as dist

    rank, size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    own_device, timeout = configure_torch(device, local_rank, threads), timedelta(seconds=timeout_s)
    backend = "nccl" if own_device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_store(rank, timeout), rank=rank, world_size=size, timeout=timeout)
    return World(rank, size, own_device)


def configure_torch(device: str, local_rank: int, threads: int) -> "torch.device":
    """Make torch compute reproducibly in this process; gives the device of its local rank."""
    import torch

    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    # More threads would change the order of sums, and so the last bits of the weights.
    torch.set_num_threads(threads)
    # A user's own model may need a kernel that has no exact form on a GPU: warn, do not fail.
    torch.use_deterministic_algorithms(True, warn_only=use_cuda)
    return torch.device("cuda", local_rank % torch.cuda.device_count()) if use_cuda else torch.device("cpu")


def _store(rank: int, timeout: timedelta) -> "TCPStore":
    """The store in which workers find each other; it listens on one address, where PyTorch's own listens on all."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return TCPStore(host, port, is_master=False, timeout=timeout)
    listening = socket.create_server((host, port), backlog=1024)
    return TCPStore(
        host, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=listening.detach()
    )


def exit_now(code: int) -> NoReturn:
    """End this process at once, with all its output written.

    Destroying a gloo group (torch 2.13) can wait for ever: its thread needs the lock of the interpreter to drop a
    tensor, which the thread that destroys the group holds.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def agent_pid() -> int:
    """The process that started this worker, as it said; 0 outside eopipe's agent."""
    return int(os.environ.get(AGENT_PID, "0"))


def restart_count() -> int:
    """How often torchrun has started this group of workers again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def die_with_parent(parent: int = 0) -> None:
    """Ask Linux to kill this process when its parent dies, so that no worker trains on alone."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        # It died before we could ask.
        os.kill(os.getpid(), signal.SIGKILL)


def announce_engine() -> None:
    """Name this process in the environment of the stages that it starts: they must not outlive it."""
    os.environ[ENGINE] = f"{os.getpid()} {start_time(os.getpid())} {_machine()}"


def die_with_engine() -> None:
    """Let this stage end with the engine that started it: the next run starts the same job again.

    Snakemake names itself, on its machine only; a process between the two, such as a container's, is left alone.
    An engine of CWL starts a stage as its own child, or as a child of a container.
    """
    engine, began, machine = (*os.environ.get(ENGINE, "").split(" ", 2), "", "", "")[:3]
    if TOOL_OF_CWL in os.environ and not engine:
        die_with_parent()
    if not machine or machine != _machine():
        return
    if os.getppid() == int(engine):
        die_with_parent(int(engine))
    elif start_time(int(engine)) != began:
        # It died before we could ask.
        os.kill(os.getpid(), signal.SIGKILL)


def _machine() -> str:
    """The running system and the process namespace; empty where there is no /proc."""
    try:
        return f"{BOOT.read_text().strip()} {NAMESPACE.readlink()}"
    except OSError:
        return ""
