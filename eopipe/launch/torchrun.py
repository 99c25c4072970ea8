"""torchrun's agent: the module that uses private parts of torch, besides `rendezvous`. Tested with torch 2.13.

| part of torch 2.13                               | here       | why                                                 |
|--------------------------------------------------|------------|-----------------------------------------------------|
| LocalElasticAgent._start_workers, ._pcontext     | overridden | a second signal must not end the agent while its    |
|                                                  |            | workers save                                        |
| PContext.close                                   | wrapped    | after a failure workers get 20 s to end, not 30     |
| LocalElasticAgent._stop_workers, ._shutdown      | overridden | by SIGTERM workers that are only to restart would   |
|                                                  |            | believe that the training ends                      |
| TCPStore(master_listen_fd=)                      | called     | torch listens on all addresses, a store here on one |
|                                                  |            | (world.py too)                                      |
| DistributedDataParallel._get_ddp_logging_data    | called     | seconds that summing gradients adds to the backward |
|                                                  |            | pass                                                |
| torch._foreach_mul_                              | called     | one kernel for all gradients (training/step.py)     |
| TORCHELASTIC_SIGNALS_TO_HANDLE                   | set        | torch takes it from the environment only: SIGUSR1   |

`rendezvous` has a table of its own. An agent on one node has its store in its own memory.
"""

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn, cast

import torch

from eopipe.launch import rendezvous as group
from eopipe.launch.failures import failure_of_signal, record_failure
from eopipe.launch.rendezvous import GroupRendezvous, Methods, missing_parts, torch_variable, unsupported
from eopipe.launch.world import RESTART_SIGNAL, handled_signals

try:
    from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, SignalException
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousHandler, RendezvousInfo
    from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo
    from torch.distributed.launcher.api import LaunchConfig
    from torch.nn.parallel import DistributedDataParallel
except ImportError as missing:
    raise unsupported(str(missing)) from missing

log = logging.getLogger("eopipe")
STOP_WITHIN_S = 20
Ended = Literal["done", "failed", "lost"]

METHODS: Methods = (
    (LocalElasticAgent, "__init__", ("spec", "logs_specs", "shutdown_timeout")),
    (LocalElasticAgent, "_start_workers", ("worker_group",)),
    (LocalElasticAgent, "_stop_workers", ("worker_group",)),
    (LocalElasticAgent, "_shutdown", ("death_sig", "timeout")),
    (PContext, "close", ("death_sig", "timeout")),
    (LaunchConfig, "__init__", ("min_nodes", "max_nodes", "nproc_per_node")),
    (DistributedDataParallel, "_get_ddp_logging_data", ()),
    (torch, "_foreach_mul_", ()),
)
ATTRIBUTES = ((LocalElasticAgent, "_pcontext"),)


def check_torch() -> None:
    """Raise UsageError where this torch lacks a part that eopipe uses, or has it with other parameters."""
    missing = missing_parts(METHODS + group.METHODS, ATTRIBUTES + group.ATTRIBUTES)
    if "master_listen_fd" not in (TCPStore.__init__.__doc__ or ""):
        missing.append("TCPStore(master_listen_fd=)")
    if missing:
        raise unsupported(f"it lacks {', '.join(missing)}")


class StoppedError(Exception):
    """A signal has stopped the agent, and the workers with it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Workers:
    """The workers of one node: their command and environment, how many, and how often they are started again."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    processes: int
    restarts: int
    log_folder: Path

    def spec(self, rendezvous: RendezvousHandler, logs: DefaultLogsSpecs) -> WorkerSpec:
        """The specification for torchrun's agent. env(1) sets the variables, so that this process keeps its own."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        # torchrun replaces ${local_rank}, and so halves each pair of $.
        arguments = tuple(word.replace("$", "$$") for word in (*variables, *self.command))
        return WorkerSpec(
            role="default",
            local_world_size=self.processes,
            entrypoint="env",
            args=arguments,
            rdzv_handler=rendezvous,
            max_restarts=self.restarts,
            # Binds each worker to the memory of its GPU, as torchrun does.
            numa_options=LaunchConfig(1, 1, self.processes, logs_specs=logs).numa_options,
        )


def run_agent(workers: Workers, rendezvous: Callable[[], RendezvousHandler], status: Path, token: int) -> Ended:
    """Run the workers of this node to their end; says whether all are done, one failed, or the group is lost."""
    # By default the agent dies of SIGUSR1 and leaves its workers behind.
    signals = ",".join(number.name for number in handled_signals())
    try:
        with torch_variable("TORCHELASTIC_SIGNALS_TO_HANDLE", signals):
            result = _run(workers, rendezvous())
    except RendezvousError as error:
        log.warning("event=group_lost reason=%r", str(error) or type(error).__name__)
        return "lost"
    if result is None:
        return "lost"
    if not result.is_failed():
        return "done"
    rank, first = min(result.failures.items(), key=lambda item: item[1].timestamp)
    if first.exitcode < 0:
        record_failure(status, failure_of_signal(rank, -first.exitcode, token))
    return "failed"


def _run(workers: Workers, rendezvous: RendezvousHandler) -> RunResult | None:
    # Without a folder of its own it would leave one in the temporary directory.
    logs = DefaultLogsSpecs(log_dir=str(workers.log_folder))
    agent, closes = Agent(workers.spec(rendezvous, logs), logs, shutdown_timeout=STOP_WITHIN_S), True
    try:
        result: RunResult | None = agent.run()
        return result
    except SignalException:
        # The other nodes may continue.
        closes = False
        if isinstance(rendezvous, GroupRendezvous):
            with suppress(RendezvousError):
                rendezvous.leave()
        raise
    finally:
        if closes:
            rendezvous.shutdown()


class Agent(LocalElasticAgent):
    """torchrun's agent of one node, with workers that end in time, once, and by another signal where they restart."""

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        process_ids: dict[int, Any] = super()._start_workers(worker_group)
        processes = cast(PContext, self._pcontext)
        close = processes.close

        def close_in_time(death_sig: Any = None, timeout: int = STOP_WITHIN_S) -> None:
            # After a failure torchrun gives the remaining workers 30 seconds, whatever the shutdown timeout is.
            close(death_sig, min(timeout, STOP_WITHIN_S))

        processes.close = close_in_time  # type: ignore[method-assign]
        for number in handled_signals():
            signal.signal(number, only_once(signal.getsignal(number)))
        return process_ids

    def _stop_workers(self, worker_group: Any) -> None:  # noqa: ARG002
        self._shutdown(RESTART_SIGNAL, STOP_WITHIN_S)


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """Let the first signal end this block, as torchrun does while its workers run. Raises StoppedError then."""

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        raise SignalException(f"stopped by signal {number}", signal.Signals(number))

    previous: dict[int, Any] = {number: signal.signal(number, only_once(stop)) for number in handled_signals()}
    try:
        yield
    except SignalException as error:
        # Later signals must not cut short how this process ends.
        previous = dict.fromkeys(previous, signal.SIG_IGN)
        raise StoppedError(error.sigval) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def only_once(handler: Any) -> Callable[[int, FrameType | None], None]:
    """A handler that passes on the first signal and then ignores all of them."""

    def handle(number: int, frame: FrameType | None) -> None:
        for other in handled_signals():
            signal.signal(other, signal.SIG_IGN)
        handler(number, frame)

    return handle


class LocalRendezvous(RendezvousHandler):
    """The rendezvous of an agent with itself: one node, a store in memory, workers on a free port of loopback."""

    def __init__(self, run_id: str, address: str) -> None:
        self.run_id, self.address = run_id, address

    def get_backend(self) -> str:
        """The name that events carry."""
        return "local"

    def get_run_id(self) -> str:
        return self.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """A world of one node, with a new port for each start of the workers."""
        store = HashStore()
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo.build(0, store, self.address))

    def num_nodes_waiting(self) -> int:
        """No other node joins."""
        return 0

    def is_closed(self) -> bool:
        """It stays open until the agent ends."""
        return False

    def set_closed(self) -> None:
        """Nothing to close."""

    def shutdown(self) -> bool:
        return True


def ddp_logging_data(module: DistributedDataParallel) -> Mapping[str, float]:
    """What DDP measured of its own passes (`DDPLoggingData`), times in nanoseconds."""
    data: Mapping[str, float] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return data
