"""torchrun's agent, hardened: `python -m eopipe.launching.agent STATUS TOKEN TORCHRUN-WORDS`.

A second signal does not cut short what the first began, and how the first worker failed is written down.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from eopipe.errors import PreemptedError
from eopipe.launching.failures import Failure, note
from eopipe.launching.signals import REGROUP
from eopipe.launching.world import die_with_parent

log = logging.getLogger("eopipe")
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
LAUNCHER, AGENT = "EOPIPE_LAUNCHER", "EOPIPE_AGENT"
STOP_WITHIN_S = 20
# How an agent ends that finds no group any more; torchrun itself ends with 1.
LOST = 76


def main() -> int:
    """Run torchrun with these words; 1 when the workers failed, LOST without a group, 75 after a signal."""
    die_with_parent(int(os.environ.get(LAUNCHER, "0")))
    from torch.distributed import run
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import PContext, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    from eopipe.launching.gathering import Gathering, register

    status, token, *words = sys.argv[1:]
    os.environ[AGENT] = str(os.getpid())
    PContext.start = _minding(PContext.start)  # type: ignore[method-assign,assignment]
    PContext.close = _in_time(PContext.close)  # type: ignore[method-assign]
    # By SIGTERM they would believe that the whole training is told to stop.
    LocalElasticAgent._stop_workers = _regroup  # type: ignore[method-assign]
    gathered: list[Gathering] = []
    register(gathered.append)
    try:
        run.main(words)
    except ChildFailedError as error:
        rank, first = error.get_first_failure()
        if first.exitcode < 0:
            note(Path(status), killed(rank, -first.exitcode, int(token)))
        return 1
    except SignalException:
        with suppress(RendezvousError):
            for handler in gathered:
                handler.leave()
        return PreemptedError.code
    except RendezvousError as error:
        log.warning("event=group-lost reason=%r", str(error) or type(error).__name__)
        return LOST
    return 0


def _in_time(close: Callable[..., None]) -> Callable[..., None]:
    def closed(workers: Any, death_sig: Any = None, timeout: float = STOP_WITHIN_S) -> None:
        # After a failure torchrun gives those that are left 30 seconds, whatever --shutdown-timeout says.
        close(workers, death_sig, min(timeout, STOP_WITHIN_S))

    return closed


def _regroup(agent: Any, _workers: Any) -> None:
    agent._shutdown(REGROUP, STOP_WITHIN_S)


def killed(rank: int, number: int, token: int) -> Failure:
    """What to tell of a worker that a signal ended, again and again."""
    name = signal.Signals(number).name
    if number == signal.SIGABRT:
        # By this NCCL ends a worker that waited too long for another one.
        reason = f"worker {rank} gave up ({name}), the log above says why; run the same command again"
        return Failure("hung", 75, reason, final=True, token=token)
    reason = (
        f"worker {rank} was ended by {name} more often than it is started again; {name} often means that memory "
        "ran out: lower train.batch or train.cache_mb, or ask for more memory, and run the same command again"
    )
    return Failure("killed", 6, reason, final=True, token=token)


def _minding(start: Callable[[Any], None]) -> Callable[[Any], None]:
    def started(workers: Any) -> None:
        start(workers)
        # torchrun raises in its handler; a second one would end it while its workers still save.
        for number in HANDLED:
            signal.signal(number, once(signal.getsignal(number)))

    return started


def once(handler: Any) -> Callable[[int, FrameType | None], None]:
    """A handler that passes on the first signal and then ignores all of them."""

    def handle(number: int, frame: FrameType | None) -> None:
        for other in HANDLED:
            signal.signal(other, signal.SIG_IGN)
        handler(number, frame)

    return handle


if __name__ == "__main__":
    sys.exit(main())
