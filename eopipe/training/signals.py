"""Signals set a flag; all workers agree on it at the end of a step."""

import signal
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@dataclass
class Stop:
    """Whether this worker was asked to stop, and whether all have agreed to."""

    asked: bool = False
    agreed: bool = False

    def listen(self) -> None:
        """Take over the signals that ask a training to stop."""
        for number in SIGNALS:
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def flag(self, like: "Tensor") -> "Tensor":
        """The flag as a number that can be summed over workers."""
        return like.new_tensor(float(self.asked))
