"""Two trainings never write one state, with or without locks of the file system."""

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eopipe.errors import UsageError
from eopipe.launch.lease import fence, hold_lease, is_alive, newest_token, read_holder

HOLDING = """
import sys, time
from pathlib import Path
from eopipe.launch.lease import hold_lease
with hold_lease(Path(sys.argv[1]), 0.05) as token:
    print(token, flush=True)
    time.sleep(60)
"""


def lease_holder(state: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(state)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == str(newest_token(state))
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    with process:
        pass


def test_a_lease_is_held_by_one_and_free_after(tmp_path: Path) -> None:
    message = f"already running \\(process {os.getpid()} on this host\\)"
    with hold_lease(tmp_path) as first, pytest.raises(UsageError, match=message), hold_lease(tmp_path):
        pass
    with hold_lease(tmp_path) as second:
        assert second == first + 1


def test_a_token_is_told_with_its_holder_and_one_file_is_left(tmp_path: Path) -> None:
    for _ in range(3):
        with hold_lease(tmp_path):
            pass
    (record,) = [json.loads(path.read_text()) for path in (tmp_path / "lease").glob("*.json")]
    assert (record["token"], record["held"], record["pid"]) == (3, False, os.getpid())


def test_the_state_does_not_tell_what_its_host_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "ada-s-laptop")
    with hold_lease(tmp_path):
        names = [path.name for path in tmp_path.rglob("*")]
        assert "ada" not in " ".join([*names, *(p.read_text() for p in tmp_path.rglob("*.json"))])


def test_who_died_on_this_host_is_followed_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end(lease_holder(tmp_path))
    began = time.monotonic()
    with hold_lease(tmp_path) as token:
        assert token == 2
    assert time.monotonic() - began < 20
    assert "event=lease_taken_over token=2" in caplog.text


def test_the_living_are_not_followed_where_locks_do_not_hold(tmp_path: Path) -> None:
    process = lease_holder(tmp_path)
    # Another file of the same name: flock is granted to both, as NFS may do.
    (tmp_path / "lease/lock").unlink()
    with pytest.raises(UsageError, match=f"process {process.pid} on"), hold_lease(tmp_path):
        pass
    end(process)


def test_a_process_that_has_the_number_of_a_dead_holder_is_not_taken_for_it(tmp_path: Path) -> None:
    with hold_lease(tmp_path):
        pass
    # As if this process held it: it lives, and its number and its start are those of the record.
    path = tmp_path / "lease/000001.json"
    holder = json.loads(path.read_text()) | {"held": True}
    path.write_text(json.dumps(holder))
    assert is_alive(read_holder(tmp_path, 1))
    with pytest.raises(UsageError, match=f"process {os.getpid()} on this host"), hold_lease(tmp_path):
        pass
    # As after a reboot: the number belongs to a process that began at another time.
    path.write_text(json.dumps(holder | {"began": str(int(holder["began"]) - 1)}))
    assert not is_alive(read_holder(tmp_path, 1))
    with hold_lease(tmp_path) as token:
        assert token == 2


def lease_of_other_host(state: Path, process: int) -> Path:
    path = state / "lease/000001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "elsewhere", "pid": process}))
    return path


def test_a_holder_on_another_host_is_followed_after_a_long_silence(tmp_path: Path) -> None:
    end(lease_holder(tmp_path))
    lease_of_other_host(tmp_path, 1)
    began = time.monotonic()
    with hold_lease(tmp_path, stale_s=0.5) as token:
        assert token == 2
    assert time.monotonic() - began >= 0.5


def test_a_holder_on_another_host_that_gives_a_sign_of_life_is_left_alone(tmp_path: Path) -> None:
    process = lease_holder(tmp_path)
    (tmp_path / "lease/lock").unlink()
    lease_of_other_host(tmp_path, process.pid)
    with pytest.raises(UsageError, match="already running"), hold_lease(tmp_path, stale_s=20):
        pass
    end(process)


def test_nobody_waits_for_a_silent_holder_that_another_has_followed(tmp_path: Path) -> None:
    (tmp_path / "lease").mkdir()
    (tmp_path / "lease/000001.json").touch()
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        pool.submit(lambda: (time.sleep(1), (tmp_path / "lease/000002.json").touch()))
        with pytest.raises(UsageError, match="already running"), hold_lease(tmp_path, stale_s=60):
            pass
    assert time.monotonic() - began < 30


def test_a_writer_with_an_older_token_is_fenced_off(tmp_path: Path) -> None:
    end(lease_holder(tmp_path))
    fence(tmp_path, 1)
    with hold_lease(tmp_path) as token:
        fence(tmp_path, token)
        with pytest.raises(UsageError, match="another training has taken over"):
            fence(tmp_path, 1)


def test_only_one_of_many_takes_a_stale_lease_over_where_locks_do_not_hold(tmp_path: Path) -> None:
    end(lease_holder(tmp_path))
    code = HOLDING.replace("from eopipe", "import fcntl; fcntl.flock = lambda *a: None\nfrom eopipe", 1)
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(arguments, **pipes) for _ in range(4)]
    try:
        deadline = time.monotonic() + 60
        while sum(process.poll() is not None for process in processes) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [process.poll() for process in processes].count(None) == 1
        assert newest_token(tmp_path) == 2
    finally:
        for process in processes:
            end(process)
    shutil.rmtree(tmp_path / "lease")
