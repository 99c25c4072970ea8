"""Ranks of a training as forks of one process that has loaded torch: a restart costs a tenth of a second.

`python forks.py JOB SEED EVENTS [MOMENT [RANKS]]` disturbs a training at that many moments and runs it again after
each, as torchrun and a scheduler would; it prints what it did. A moment is any, a save, a validation, or any for a
signal. Ranks of each try are told as `2,1,4`, and begin anew at their end.
"""

import os
import random
import signal
import socket
import sys
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import torch
from faulty_models import JUDGING, JUDGING_S

from eopipe.checkpoints.checkpoint import restore, steps
from eopipe.launch.failures import STATUS
from eopipe.training import loop, worker
from eopipe.training_job import read_job

EVENTS = {
    "any": ("kill 0", "kill 1", "kill all", "TERM", "USR1", "INT"),
    "save": ("kill all", "kill all", "kill 0", "TERM"),
    "validation": ("TERM", "USR1", "INT"),
    "signal": ("TERM", "USR1", "INT"),
}
# A validation takes longer than a signal may: 6 batches.
SLOW_S = 5.0
# A bound for a hang, not for speed: four workers may share a core with other tests.
ENDS_WITHIN_S = 60


def start(job: str, ranks: int) -> list[int]:
    """Fork the ranks of one try."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update(rendezvous | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            sys.argv = ["worker", job]
            code = 1
            try:
                code = worker.main()
            finally:
                os._exit(code)
        pids.append(pid)
    return pids


def newest(state: Path) -> int:
    checkpoints = steps(state)
    return int(checkpoints[-1].name[5:]) if checkpoints else 0


def restored_step(state: Path) -> int:
    """The step of the checkpoint that a resume begins from; 0 for none."""
    restored = restore(state)
    return restored[0].step if restored else 0


def has_come(moment: str, state: Path, at: int) -> bool:
    if moment == "save":
        # A draft may get its name while this looks into it.
        with suppress(FileNotFoundError):
            return any(newest(state) and path.name.endswith(".safetensors") for path in state.glob(".step-*/step-*/*"))
        return False
    if moment == "validation":
        return Path(os.environ[JUDGING]).exists()
    return newest(state) >= at


def disturb(event: str, pids: list[int]) -> None:
    kind, _, which = event.partition(" ")
    number = getattr(signal, f"SIG{kind.upper()}")
    for rank, pid in enumerate(pids):
        if which in ("", "all", str(rank)):
            os.kill(pid, number)


def have_ended(pids: list[int], seconds: float) -> bool:
    """Whether all have ended by then."""
    deadline, flags = time.monotonic() + seconds, os.WEXITED | os.WNOWAIT | os.WNOHANG
    while time.monotonic() < deadline:
        if all(os.waitid(os.P_PID, pid, flags) for pid in pids):
            return True
        time.sleep(0.002)
    return False


def died_of_signal(pid: int) -> bool:
    """Whether a signal ended it, so that its own handler did not run, or not yet."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    return ended is not None and ended.si_code != os.CLD_EXITED


def codes(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def alive(pids: list[int]) -> bool:
    return all(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" for pid in pids)


def main() -> int:
    path, seed, events, moment = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:5], "any")[0]
    worlds = cycle(int(word) for word in (*sys.argv[5:], "2")[0].split(","))
    draw, state = random.Random(seed), Path(read_job(Path(path)).state)
    os.environ |= {JUDGING: str(state / "judging"), JUDGING_S: str(SLOW_S if moment == "validation" else 0)}
    for number in range(events):
        (state / STATUS).unlink(missing_ok=True)
        Path(os.environ[JUDGING]).unlink(missing_ok=True)
        kinds, before, at = EVENTS[moment], restored_step(state), newest(state) + draw.choice((0, 1, 1, 2))
        pids, event = start(path, next(worlds)), draw.choice(kinds) if moment == "any" else kinds[number % len(kinds)]
        while not has_come(moment, state, at) and alive(pids):
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.05))
        assert alive(pids), "it ended by itself"
        disturb(event, pids)
        if not have_ended(pids, 3):
            if any(map(died_of_signal, pids)):
                # The others wait for it, which was killed or did not listen for signals yet; torchrun would end them.
                disturb("kill", pids)
            else:
                assert have_ended(pids, ENDS_WITHIN_S), f"alive {ENDS_WITHIN_S} s after {event}"
        exit_codes = codes(pids)
        assert restored_step(state) >= before, f"{event} lost a checkpoint that was there"
        print(event, restored_step(state), *exit_codes, flush=True)
    os.environ[JUDGING_S] = "0"
    (state / STATUS).unlink(missing_ok=True)
    exit_codes = codes(start(path, next(worlds)))
    print("end", newest(state), *exit_codes, flush=True)
    return max(map(abs, exit_codes))


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert loop
    sys.exit(main())
