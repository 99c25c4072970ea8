"""Signals set a flag; all workers agree on it at the end of a step."""

import os
import signal
import time
from dataclasses import dataclass
from types import FrameType

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
