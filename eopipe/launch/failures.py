"""Why a training ended: a class, a sentence and an exit code in `status.json`; torchrun reports 1 for everything."""

import re
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from eopipe.errors import BY_CODE, EopipeError, NoSpaceError, is_full, model_code_error, no_space
from eopipe.publish import publish
from eopipe.text_files import read_json, write_json

# Beside the checkpoints of a training.
STATUS = "status.json"
KINDS = {2: "usage", 3: "data", 4: "damaged", 5: "upstream", 6: "full", 7: "diverged", 8: "refused", 75: "pre-empted"}
# Messages of the allocators of CPU and GPU, and of cuBLAS, cuDNN and NCCL, which have their own.
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
STUCK = re.compile(r"data-loader worker has been stuck")
UNUSED = re.compile(r"parameters that were not used in producing loss")
READER = re.compile(
    r"worker.*(exited unexpectedly|is killed by signal)|(process|data-loader worker).*(died|was killed)", re.IGNORECASE
)


@dataclass(frozen=True)
class Failure:
    """What went wrong; a final failure is not tried again. `token` and `attempt` say which try it belongs to."""

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

    After a lost or silent worker, a dead loader process and an unknown error the newest checkpoint is tried again.
    """
    if is_full(error):
        error = no_space(state)
    if isinstance(error, EopipeError):
        return Failure(KINDS.get(error.code, "bug"), error.code, str(error))
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if is_out_of_memory(error):
        remedy = "lower train.batch, train.width or train.cache_mb, raise train.accumulate, or set train.recompute"
        return Failure("memory", 6, f"out of memory ({text}); {remedy}")
    if STUCK.search(str(error)):
        remedy = "check whether a disk hangs, or raise train.timeout_s"
        return Failure("reader", 75, f"a data-loader worker hangs ({text}); {remedy}", final=False)
    if READER.search(str(error)):
        remedy = "if memory ran out, lower train.cache_mb or request more memory"
        return Failure("reader", 6, f"a data-loader worker died ({text}); {remedy}", final=False)
    return (
        _model_failure(error)
        or _network_failure(error, text)
        or Failure("bug", 70, f"the training met an unknown error ({text}); the log above says where", final=False)
    )


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; on a CPU, and inside libraries of a GPU, only the message of an error says so."""
    matches = isinstance(error, (RuntimeError, OSError)) and MEMORY.search(str(error))
    # By its name, since torch is not loaded for this.
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or bool(matches)


def _model_failure(error: Exception) -> Failure | None:
    if UNUSED.search(str(error)):
        reason = (
            "some parameters of the model have no influence on its output, so processes cannot share their gradients"
        )
        remedy = (
            "name these layers in train.freeze (TORCH_DISTRIBUTED_DEBUG=DETAIL lists them), or set train.processes: 1"
        )
        return Failure("usage", 2, f"{reason}: {remedy}")
    in_model = model_code_error(error)
    return Failure("model", in_model.code, str(in_model), final=False) if in_model else None


def _network_failure(error: Exception, text: str) -> Failure | None:
    if not isinstance(error, (RuntimeError, OSError)):
        return None
    if SILENT.search(str(error)):
        remedy = "check whether a node or disk hangs, or raise train.timeout_s, and run the same command again"
        return Failure("hung", 75, f"a worker was silent for too long ({text}); {remedy}", final=False)
    if LOST.search(str(error)):
        return Failure("lost", 75, f"a worker was lost ({text}); run the same command again", final=False)
    return None


def failure_of_signal(rank: int, number: int, token: int) -> Failure:
    """The failure of a worker that a signal ended, again and again."""
    name = signal.Signals(number).name
    if number == signal.SIGABRT:
        # NCCL ends a worker by SIGABRT that waited too long for another one.
        reason = f"worker {rank} ended ({name}), the log above says why; run the same command again"
        return Failure("hung", 75, reason, final=True, token=token)
    reason = (
        f"worker {rank} was killed by {name} more often than train.restarts allows; {name} often means that memory "
        "ran out: lower train.batch or train.cache_mb, or request more memory, and run the same command again"
    )
    return Failure("killed", 6, reason, final=True, token=token)


def record_failure(path: Path, failure: Failure) -> Failure:
    """Write a failure to `status.json`, unless its cause is there already; gives the one that counts.

    The same failure twice at the same step is not an accident, so it is final then.
    """
    earlier = read_failure(path)
    if earlier and earlier.token == failure.token:
        if earlier.final or (failure.kind == "lost" and earlier.attempt == failure.attempt):
            return earlier
        is_retry = earlier.attempt < failure.attempt and failure.kind not in {"lost", "hung"}
        if is_retry and (earlier.kind, earlier.step, earlier.reason) == (failure.kind, failure.step, failure.reason):
            failure = replace(failure, final=True)
    # Where the disk is full, the launcher notices by itself.
    with suppress(NoSpaceError), publish(path) as draft:
        write_json(draft, asdict(failure))
    return failure


def check_disk_space(path: Path) -> None:
    """Raise NoSpaceError where a failure could not be written."""
    probe = path.with_name("room")
    with publish(probe) as draft:
        draft.write_text("test")
    probe.unlink(missing_ok=True)


def read_failure(path: Path) -> Failure | None:
    """The failure in `status.json`, if there is one."""
    if not path.exists():
        return None
    content: Any = read_json(path)
    known = {field.name: field.type for field in fields(Failure)}
    # Later versions may write more; values of another type are ignored.
    values = {name: content[name] for name in known if name in content} if isinstance(content, dict) else {}
    is_complete = {"kind", "code", "reason"} <= values.keys()
    return Failure(**values) if is_complete and all(type(v) is known[k] for k, v in values.items()) else None
