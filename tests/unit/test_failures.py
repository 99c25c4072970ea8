"""Every end of a training has a class, a sentence with what to do, and an exit code."""

import errno
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from eopipe.errors import BadInputError, DivergedError, NoSpaceError, PreemptedError
from eopipe.launch.failures import (
    Failure,
    classify,
    failure_of_signal,
    is_out_of_memory,
    read_failure,
    record_failure,
)
from eopipe.launch.torchrun import only_once
from eopipe.launch.world import handled_signals

PEER = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"
# Words that torch has used for NCCL; not seen on a GPU here.
NCCL_MEMORY = (
    "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc async 608 bytes"
)
NCCL_LOST = (
    "NCCL error in: ProcessGroupNCCL.cpp:2390, remote process exited or there was a network error\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
)
NCCL_SILENT = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, "
    "NumelOut=4, Timeout(ms)=60000) ran for 60012 milliseconds before timing out."
)
SILENCE = "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 15000ms for recv operation"


@pytest.mark.parametrize(
    ("error", "kind", "code", "final", "remedy"),
    [
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "memory",
            6,
            True,
            "lower",
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "memory", 6, True, "lower train.batch"),
        (RuntimeError("module has parameters that were not used in producing loss"), "usage", 2, True, "train.freeze"),
        (RuntimeError(NCCL_MEMORY), "memory", 6, True, "lower train.batch"),
        (RuntimeError(NCCL_LOST), "lost", 75, False, "run the same command again"),
        (RuntimeError(NCCL_SILENT), "hung", 75, False, "train.timeout_s"),
        (RuntimeError("failed to recv, got 0 bytes"), "lost", 75, False, "run the same command again"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory", 6, True, "lower train.batch"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "memory", 6, True, "lower train.batch"),
        (MemoryError(), "memory", 6, True, "lower train.batch"),
        (DivergedError("the loss is nan at step 3; lower train.learning_rate"), "diverged", 7, True, "learning_rate"),
        (BadInputError("tile 7 is empty; fetch it"), "data", 3, True, "fetch it"),
        (OSError(errno.ENOSPC, "No space left on device"), "full", 6, True, "free some space"),
        (PreemptedError("stopped at step 3; run the same command again"), "pre-empted", 75, True, "run the same"),
        (RuntimeError(SILENCE), "hung", 75, False, "train.timeout_s"),
        (RuntimeError(PEER), "lost", 75, False, "run the same command again"),
        (RuntimeError("DataLoader worker (pid 3) is killed by signal: Killed."), "reader", 6, False, "cache_mb"),
        (RuntimeError("a data-loader worker was killed by signal 9"), "reader", 6, False, "cache_mb"),
        (KeyError("x"), "bug", 70, False, "the log above says where"),
        (ValueError("connection pooling of peers"), "bug", 70, False, "the log above says where"),
    ],
)
def test_an_error_has_its_class(
    tmp_path: Path, error: Exception, kind: str, code: int, final: bool, remedy: str
) -> None:
    failure = classify(error, tmp_path)
    assert (failure.kind, failure.code, failure.final) == (kind, code, final)
    assert remedy in failure.reason
    assert "\n" not in failure.reason
    assert failure.error().code == code


def test_a_full_disk_raises_the_error_of_a_full_disk(tmp_path: Path) -> None:
    assert isinstance(classify(OSError(errno.EDQUOT, "quota"), tmp_path).error(), NoSpaceError)


def test_what_is_noted_is_read_again(tmp_path: Path) -> None:
    failure = Failure("bug", 70, "odd", final=False, step=3, token=2, attempt=1, signal=0)
    assert read_failure(tmp_path / "status.json") is None
    record_failure(tmp_path / "status.json", failure)
    assert read_failure(tmp_path / "status.json") == failure


def test_the_first_cause_stands_above_its_effects_on_others(tmp_path: Path) -> None:
    cause = Failure("reader", 6, "killed", final=False, token=1)
    record_failure(tmp_path / "s", cause)
    assert record_failure(tmp_path / "s", Failure("lost", 75, "a worker was lost", final=False, token=1)) == cause
    assert read_failure(tmp_path / "s") == cause


def test_an_effect_gives_way_to_its_cause(tmp_path: Path) -> None:
    record_failure(tmp_path / "s", Failure("lost", 75, "a worker was lost", final=False, token=1))
    cause = Failure("data", 3, "empty", token=1)
    assert record_failure(tmp_path / "s", cause) == cause


def test_the_same_failure_twice_at_the_same_step_is_final(tmp_path: Path) -> None:
    bug = Failure("bug", 70, "odd", final=False, step=3, token=1, attempt=0)
    assert not record_failure(tmp_path / "s", bug).final
    assert not record_failure(tmp_path / "s", replace(bug, step=4, attempt=1)).final
    assert record_failure(tmp_path / "s", replace(bug, step=4, attempt=2)).final


def test_a_lost_worker_is_no_bug_however_often_it_comes_at_one_step(tmp_path: Path) -> None:
    lost = Failure("lost", 75, "gone", final=False, step=3, token=1)
    assert not any(record_failure(tmp_path / "s", replace(lost, attempt=attempt)).final for attempt in range(5))


def test_what_an_earlier_training_met_means_nothing_to_the_next(tmp_path: Path) -> None:
    record_failure(tmp_path / "s", Failure("data", 3, "empty", token=1))
    new = Failure("lost", 75, "gone", final=False, token=2)
    assert record_failure(tmp_path / "s", new) == new


def test_a_worker_that_is_killed_again_and_again_points_at_memory() -> None:
    failure = failure_of_signal(1, signal.SIGKILL, 4)
    assert (failure.code, failure.token) == (6, 4)
    assert "worker 1 was killed by SIGKILL" in failure.reason


def test_a_worker_that_gave_up_is_told_as_hung_and_not_as_out_of_memory() -> None:
    failure = failure_of_signal(0, signal.SIGABRT, 4)
    assert (failure.kind, failure.code) == ("hung", 75)
    assert "memory" not in failure.reason


def test_a_second_signal_does_nothing() -> None:
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, only_once(lambda n, _frame: received.append(n)))
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert received == [signal.SIGUSR1]


def test_under_nohup_a_terminal_that_is_gone_stops_nothing() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in handled_signals()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in handled_signals()
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_memory_of_the_cpu_that_runs_out_is_told_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("whatever it says"))
    assert not is_out_of_memory(RuntimeError("shape '[3]' is invalid for input of size 4"))
