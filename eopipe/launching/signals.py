"""Signals set a flag; all workers agree on it at the end of a step."""

import signal
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@dataclass
class Stop:
    """Whether this worker was asked to stop and by which signal, and whether all have agreed to."""

    asked: bool = False
    agreed: bool = False
    number: int = 0

    def listen(self) -> None:
        """Take over the signals that ask a training to stop."""
        for number in SIGNALS:
            signal.signal(number, self._ask)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.asked, self.number = True, self.number or number
