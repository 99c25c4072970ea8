"""Why a training ended, in one word, one sentence and one exit code; torchrun reports 1 for everything."""

import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from eopipe.errors import BY_CODE, EopipeError, NoSpaceError, is_full, no_space
from eopipe.publish import publish, read_json, write_json

# Beside the checkpoints of a training.
STATUS = "status.json"
KINDS = {2: "usage", 3: "data", 4: "damaged", 5: "upstream", 6: "full", 7: "diverged", 8: "refused", 75: "pre-empted"}
# Of the allocators of CPU and GPU, and of cuBLAS, cuDNN and NCCL, which have their own.
MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|cannot allocate memory|_ALLOC_FAILED|cuda calloc",
    re.IGNORECASE,
)
SILENT = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
LOST = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|remote process exit|peer|nccl(System|Remote)Error"
    r"|failed to (recv|connect)|unreachable|no route to host|communicator was aborted",
    re.IGNORECASE,
)
STUCK = re.compile(r"process.* is stuck")
READER = re.compile(r"worker.*(exited unexpectedly|is killed by signal)|process.*(died|was killed)", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """What went wrong; a final one is not tried again. `token` and `attempt` say which try it belongs to."""

    kind: str
    code: int
    reason: str
    final: bool = True
    step: int = 0
    token: int = 0
    attempt: int = 0
    signal: int = 0

    def error(self) -> EopipeError:
        """The error that the launcher raises for it."""
        return BY_CODE.get(self.code, EopipeError)(self.reason)


def classify(error: Exception, state: Path) -> Failure:
    """Put an error of a worker into its class, with what to do about it.

    A lost or silent worker, a dead reader and what nobody foresaw are tried again from the newest checkpoint.
    """
    if is_full(error):
        error = no_space(state)
    if isinstance(error, EopipeError):
        return Failure(KINDS.get(error.code, "bug"), error.code, str(error))
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if out_of_memory(error):
        todo = "lower train.batch, train.width or train.cache_mb, raise train.accumulate, or set train.recompute"
        return Failure("memory", 6, f"memory is used up ({text}); {todo}")
    if STUCK.search(str(error)):
        todo = "see whether a disk hangs, or raise train.timeout_s"
        return Failure("reader", 75, f"a process that reads the data hangs ({text}); {todo}", final=False)
    if READER.search(str(error)):
        todo = "if memory ran out, lower train.cache_mb or ask for more memory"
        return Failure("reader", 6, f"a process that reads the data died ({text}); {todo}", final=False)
    return _of_the_network(error, text) or Failure(
        "bug",
        70,
        f"the training met an error that eopipe does not know ({text}); the log above says where",
        final=False,
    )


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; on a CPU, and inside libraries of a GPU, only the words of an error tell."""
    told = isinstance(error, (RuntimeError, OSError)) and MEMORY.search(str(error))
    # By its name, since torch is not loaded for this.
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or bool(told)


def _of_the_network(error: Exception, text: str) -> Failure | None:
    if not isinstance(error, (RuntimeError, OSError)):
        return None
    if SILENT.search(str(error)):
        todo = "see whether a node or disk hangs, or raise train.timeout_s, and run the same command again"
        return Failure("hung", 75, f"a worker was silent for too long ({text}); {todo}", final=False)
    if LOST.search(str(error)):
        return Failure("lost", 75, f"a worker was lost ({text}); run the same command again", final=False)
    return None


def note(path: Path, failure: Failure) -> Failure:
    """Leave a failure in `status.json`; the first cause stands above what it does to other workers.

    The same failure twice at the same step is no accident, so it is final then.
    """
    before = noted(path)
    if before and before.token == failure.token:
        if before.final or (failure.kind == "lost" and before.attempt == failure.attempt):
            return before
        again = before.attempt < failure.attempt and failure.kind not in {"lost", "hung"}
        if again and (before.kind, before.step, before.reason) == (failure.kind, failure.step, failure.reason):
            failure = replace(failure, final=True)
    # Where there is no room, the launcher finds out by itself.
    with suppress(NoSpaceError), publish(path) as draft:
        write_json(draft, asdict(failure))
    return failure


def check_room(path: Path) -> None:
    """Raise NoSpaceError where a failure could not be noted."""
    probe = path.with_name("room")
    with publish(probe) as draft:
        draft.write_text("there is room")
    probe.unlink(missing_ok=True)


def noted(path: Path) -> Failure | None:
    """The failure that `status.json` tells, if there is one."""
    if not path.exists():
        return None
    told: dict[str, Any] = read_json(path)
    return Failure(**told)
