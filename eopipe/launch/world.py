"""The world of a worker: rank, size, device. The only place that reads RANK and its kin."""

import ctypes
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from eopipe.telemetry.timing import phase

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
# What an agent hears.
HEARD = (*SIGNALS, signal.SIGHUP, signal.SIGQUIT)
# By this an agent stops its workers to start them again in another world.
REGROUP = signal.SIGUSR2
# Set where a node that is told to stop leaves a group that goes on.
LEAVES = "EOPIPE_LEAVES"
# What a worker adds to the sum over all workers when its wish ends the training: more than there are workers.
END = float(1 << 20)


class RegroupedError(Exception):
    """The state is saved and this world ends; another one goes on."""


def handled() -> tuple[signal.Signals, ...]:
    """Signals that stop a training here: under nohup not that the terminal is gone."""
    return tuple(one for one in HEARD if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


@dataclass
class Stop:
    """What this worker wishes: 0 to go on, 1 to stop for another world, END to end; and what all have agreed to."""

    wish: float = 0.0
    agreed: float = 0.0
    number: int = 0

    def listen(self) -> None:
        """Take over the signals that ask a training to stop."""
        for number in (*SIGNALS, REGROUP):
            signal.signal(number, self._ask)

    @property
    def ends(self) -> bool:
        """Whether all have agreed to end the training, not only this world of it."""
        return self.agreed >= END

    def await_agent(self, seconds: float) -> None:
        """Wait to be stopped: a world that changed is no failure, so the agent should find out by itself."""
        until = time.monotonic() + seconds
        while not self.wish and time.monotonic() < until:
            time.sleep(0.05)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        leaves = number == REGROUP or os.environ.get(LEAVES) == "1"
        self.wish = max(self.wish, 1.0 if leaves else END)
        self.number = self.number or number * (number != REGROUP)


@dataclass(frozen=True)
class World:
    """Who this worker is among the others, and where it computes."""

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
    def first(self) -> bool:
        """Whether this worker writes files and logs."""
        return self.rank == 0


def join(device: str, timeout_s: float, threads: int) -> World:
    """Enter the process group that torchrun set up; gloo on CPU, NCCL on GPU."""
    import torch.distributed as dist

    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    place, wait = settle(device, local, threads), timedelta(seconds=timeout_s)
    kind = "nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(kind, store=_store(rank, wait), rank=rank, world_size=size, timeout=wait)
    return World(rank, size, place)


def settle(device: str, local: int, threads: int) -> "torch.device":
    """Let torch compute here the same every time; the device of this process, the `local`-th of its node."""
    import torch

    use_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    # More threads would change the order of sums, and so the last bits of the weights.
    torch.set_num_threads(threads)
    # A model of one's own may need a kernel that has no exact form on a GPU: warn, do not fail.
    torch.use_deterministic_algorithms(True, warn_only=use_cuda)
    return torch.device("cuda", local % torch.cuda.device_count()) if use_cuda else torch.device("cpu")


def _store(rank: int, wait: timedelta) -> "TCPStore":
    """Where workers find each other. The first one listens on its own address only, PyTorch on all (2.13)."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return TCPStore(host, port, is_master=False, timeout=wait)
    listening = socket.create_server((host, port), backlog=1024)
    return TCPStore(
        host, port, is_master=True, timeout=wait, wait_for_workers=False, master_listen_fd=listening.detach()
    )


def end(code: int) -> NoReturn:
    """End this process at once, with what it has said written out.

    Taking a gloo group apart (torch 2.13) can wait for ever: its thread wants the lock of the interpreter to
    drop a tensor, which the one that takes it apart holds.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def agent() -> int:
    """The process that started this worker, as it said; 0 outside eopipe's agent."""
    return int(os.environ.get("EOPIPE_AGENT", "0"))


def attempt() -> int:
    """How often torchrun has started this group of workers again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def die_with_parent(parent: int = 0) -> None:
    """Ask Linux to kill this process when its parent dies, so that no worker trains on alone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        # It died before we could ask.
        os.kill(os.getpid(), signal.SIGKILL)
