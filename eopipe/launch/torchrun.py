"""torchrun's agent in this process, hardened.

A second signal does not cut short what the first began, and how the first worker failed is written down.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

from eopipe.launch.failures import Failure, note
from eopipe.launch.world import REGROUP, handled

log = logging.getLogger("eopipe")
AGENT = "EOPIPE_AGENT"
STOP_WITHIN_S = 20
Ended = Literal["done", "failed", "lost"]


class StoppedError(Exception):
    """A signal has stopped what went on here, and the workers with it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def serve(words: list[str], status: Path, token: int) -> Ended:
    """Run torchrun with these words, and tell how it ended: all workers did, or one failed, or there is no group."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    from eopipe.launch.rendezvous import leave, register

    os.environ[AGENT] = str(os.getpid())
    register()
    try:
        with _hardened():
            run.main(words)
    except ChildFailedError as error:
        rank, first = error.get_first_failure()
        if first.exitcode < 0:
            note(status, killed(rank, -first.exitcode, token))
        return "failed"
    except SignalException:
        with suppress(RendezvousError):
            leave()
        raise
    except RendezvousError as error:
        log.warning("event=group-lost reason=%r", str(error) or type(error).__name__)
        return "lost"
    return "done"


@contextmanager
def _hardened() -> Iterator[None]:
    """Mend torchrun as long as it runs."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import PContext

    before = PContext.start, PContext.close, LocalElasticAgent._stop_workers
    PContext.start = _minding(PContext.start)  # type: ignore[method-assign,assignment]
    PContext.close = _in_time(PContext.close)  # type: ignore[method-assign]
    # By SIGTERM they would believe that the whole training is told to stop.
    LocalElasticAgent._stop_workers = _regroup  # type: ignore[method-assign]
    try:
        yield
    finally:
        PContext.start, PContext.close, LocalElasticAgent._stop_workers = before  # type: ignore[method-assign]


@contextmanager
def listening() -> Iterator[None]:
    """Let the first signal end what goes on here, as torchrun does while its workers run. Raises StoppedError then."""
    from torch.distributed.elastic.multiprocessing import SignalException

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        raise SignalException(f"stopped by signal {number}", signal.Signals(number))

    before: dict[int, Any] = {number: signal.signal(number, once(stop)) for number in handled()}
    try:
        yield
    except SignalException as error:
        # Those that come now must not cut short how this process ends.
        before = dict.fromkeys(before, signal.SIG_IGN)
        raise StoppedError(error.sigval) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
        for number in handled():
            signal.signal(number, once(signal.getsignal(number)))

    return started


def once(handler: Any) -> Callable[[int, FrameType | None], None]:
    """A handler that passes on the first signal and then ignores all of them."""

    def handle(number: int, frame: FrameType | None) -> None:
        for other in handled():
            signal.signal(other, signal.SIG_IGN)
        handler(number, frame)

    return handle
