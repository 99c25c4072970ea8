"""Copies of a training's data on a node's own disk: whole or not at all, and never left behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eopipe.launch.scratch import local_copies, local_path
from eopipe.publish import MANIFEST, publish
from eopipe.text_files import read_json, write_json

HOLDING = """
import os, signal, sys, time
from pathlib import Path
from eopipe.launch.scratch import local_copies
with local_copies(sys.argv[1], {"tiles": [Path(sys.argv[2])]}) as environment:
    print(environment, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with publish(tmp_path / "a.zarr", folder=True) as draft:
        (draft / "c0").write_bytes(b"pixels")
    return tmp_path / "a.zarr"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def test_workers_are_led_to_a_copy_that_is_gone_afterwards(
    store: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_DISK", str(disk))
    assert local_path("tiles", store) == store
    with local_copies("$NODE_DISK", {"tiles": [store], "labels": [store]}) as environment:
        [(name, folder)] = environment.items()
        monkeypatch.setenv(name, folder)
        copy = local_path("tiles", store)
        assert copy.is_relative_to(disk)
        assert (copy / "c0").read_bytes() == b"pixels"
        assert local_path("labels", store) != copy
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("$NOBODY_SETS_THIS", "train.scratch $NOBODY_SETS_THIS is not set on this node"),
        ("/nowhere/at/all", "No such file or directory"),
        ("/proc", "/proc"),
    ],
)
def test_without_a_place_the_data_is_read_in_place(
    store: Path, caplog: pytest.LogCaptureFixture, folder: str, sentence: str
) -> None:
    with local_copies(folder, {"tiles": [store]}) as environment:
        assert environment == {}
    [message] = caplog.messages
    assert sentence in message
    assert "action=read-in-place" in message


def test_what_does_not_fit_is_not_begun(store: Path, disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    manifest = read_json(store / MANIFEST)
    manifest["files"][0]["size"] = 1 << 60
    write_json(store / MANIFEST, manifest)
    with local_copies(str(disk), {"tiles": [store]}) as environment:
        assert environment == {}
        assert list(disk.iterdir()) == []
    assert "MB free and 1099511627776 MB are needed" in caplog.messages[0]


def test_a_copy_that_is_not_the_original_is_not_used(store: Path, disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    (store / "c0").write_bytes(b"pixelz")
    with local_copies(str(disk), {"tiles": [store]}) as environment:
        assert environment == {}
    assert "c0 has other content than the manifest says" in caplog.messages[0]
    assert list(disk.iterdir()) == []


def test_what_a_killed_training_left_is_removed_by_the_next_and_what_a_live_one_has_stays(
    store: Path, disk: Path
) -> None:
    line = [sys.executable, "-c", HOLDING, str(disk), str(store)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as dead:
        assert dead.stdout
        dead.stdout.readline()
        dead.send_signal(signal.SIGKILL)
    assert len(list(disk.iterdir())) == 2
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        [copies] = [path for path in disk.iterdir() if path.is_dir()]
        with local_copies(str(disk), {"tiles": [store]}) as environment:
            assert environment
            assert (copies / "tiles/a.zarr/c0").exists()
        process.kill()
