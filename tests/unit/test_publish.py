"""A final name is complete or absent, and a manifest finds everything that changed afterwards."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scenery import Catalog, Run, write_raster

from eopipe.errors import IntegrityError, NoSpaceError, UsageError
from eopipe.publish import MANIFEST, digest, host_id, publish, verify
from eopipe.text_files import read_json, write_json


def make_folder(target: Path, **files: str) -> Path:
    with publish(target, folder=True) as draft:
        for name, text in files.items():
            (draft / "deep").mkdir(exist_ok=True)
            (draft / "deep" / name).write_text(text)
    return target


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("folder", [False, True])
def test_an_exception_inside_the_block_leaves_nothing_new_and_the_old_output_as_it_was(
    tmp_path: Path, folder: bool, is_new: bool
) -> None:
    target = tmp_path / "out"
    if not is_new:
        make_folder(target, a="old") if folder else target.write_text("old")
    before = None if is_new else digest(target)

    def write() -> None:
        with publish(target, folder=folder) as draft:
            (draft / "a" if folder else draft).write_text("new")
            raise KeyError("the writer broke")

    with pytest.raises(KeyError):
        write()
    assert (digest(target) if target.exists() else None) == before
    assert [p.name for p in tmp_path.iterdir()] == ([] if is_new else ["out"])


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    make_folder(tmp_path / "out", a="1", b="2")
    make_folder(tmp_path / "out", c="3")
    assert [p.name for p in (tmp_path / "out" / "deep").iterdir()] == ["c"]
    verify(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@dataclass(frozen=True)
class Call:
    """A call of the operating system: `sync` with what the file held then, or `rename` with its target."""

    name: str
    path: Path
    content: bytes = b""
    target: Path = Path()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What is synced and renamed from here on, in its order; it is done as ever."""
    recorded: list[Call] = []
    sync = os.fsync

    def recording_sync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        sync(handle)
        recorded.append(Call("sync", path, path.read_bytes() if path.is_file() else b""))

    def recording(rename: Callable[..., None]) -> Callable[..., None]:
        def recording_rename(source: Path, target: Path) -> None:
            rename(source, target)
            recorded.append(Call("rename", Path(source), target=Path(target)))

        return recording_rename

    monkeypatch.setattr(os, "fsync", recording_sync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, recording(getattr(os, name)))
    return recorded


# A kill loses nothing that was written, so only the order of the calls can show what a power failure would do.
@pytest.mark.parametrize("is_new", [True, False])
def test_every_file_and_folder_of_a_draft_is_synced_before_the_rename_and_the_parent_after_it(
    tmp_path: Path, calls: list[Call], is_new: bool
) -> None:
    target = tmp_path / "out"
    if not is_new:
        make_folder(target, old="0")
        calls.clear()
    make_folder(target, a="1", b="2")
    (at,) = (n for n, call in enumerate(calls) if call.target == target)
    draft, synced = calls[at].path, {call.path: call.content for call in calls[:at] if call.name == "sync"}
    names = {path.relative_to(draft).as_posix(): content for path, content in synced.items()}
    assert names.keys() == {".", "deep", "deep/a", "deep/b", MANIFEST}
    files = {name: (target / name).read_bytes() for name in names if (target / name).is_file()}
    assert {name: names[name] for name in files} == files, "nothing is written after it was synced"
    assert Call("sync", tmp_path) in calls[at:]


def test_a_file_is_synced_before_the_rename_and_its_folder_after_it(tmp_path: Path, calls: list[Call]) -> None:
    target = tmp_path / "out.json"
    with publish(target) as draft:
        write_json(draft, {"a": 1})
    assert calls == [
        Call("sync", draft, target.read_bytes()),
        Call("rename", draft, target=target),
        Call("sync", tmp_path),
    ]


WRITER = """
import sys, time
from pathlib import Path
from eopipe.publish import publish
with publish(Path(sys.argv[1]), folder=True) as draft:
    (draft / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@contextmanager
def writer(target: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that is in the middle of writing the target."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, target], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "writing\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_kill_9_leaves_no_final_name_and_the_next_run_sweeps_the_draft(tmp_path: Path) -> None:
    target = tmp_path / "out [1]*"
    with writer(target) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 1, "the draft of the killed writer"
    make_folder(target, a="1")
    assert list(tmp_path.iterdir()) == [target]


def test_the_draft_of_a_living_writer_is_not_swept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with writer(target):
        make_folder(target, a="1")
        drafts = [p for p in tmp_path.iterdir() if p != target]
        assert [(d / "out" / "half").read_text() for d in drafts] == ["half"]


def test_a_host_is_named_by_a_digest_that_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef\n")
    monkeypatch.setattr("platform.node", lambda: "node-7")
    monkeypatch.setattr("eopipe.publish.MACHINE_ID", tmp_path / "machine-id")
    # Leases and drafts of an earlier version have this name.
    assert host_id() == "7eee9ef00643"


def test_the_draft_of_another_host_is_swept_once_nothing_in_it_has_changed_for_a_day(tmp_path: Path) -> None:
    other_draft = tmp_path / ".out.tmp-0123456789ab-999999999-0123abcd"
    (other_draft / "out").mkdir(parents=True)
    file = other_draft / "out/half"
    file.touch()
    yesterday = time.time() - 25 * 3600
    for path in (other_draft / "out", other_draft):
        os.utime(path, (yesterday, yesterday))
    make_folder(tmp_path / "out", a="1")
    assert file.exists(), "its writer works"
    for path in (file, other_draft / "out", other_draft):
        os.utime(path, (yesterday, yesterday))
    make_folder(tmp_path / "other", a="1")
    assert file.exists(), "it is of another output"
    make_folder(tmp_path / "out", a="1")
    assert not other_draft.exists()


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError, match="cannot write"), publish(tmp_path / "file" / "out"):
        pass


def test_the_same_value_gives_the_same_json_in_every_locale(tmp_path: Path) -> None:
    write_json(tmp_path / "here", {"b": "é", "a": [1, 0.1]})
    code = (
        "from pathlib import Path; import sys; from eopipe.text_files import write_json; "
        "write_json(Path(sys.argv[1]), {'a': [1, 0.1], 'b': '\\u00e9'})"
    )
    other = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "there"], env=other, check=True)
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()
    assert read_json(tmp_path / "here") == {"a": [1, 0.1], "b": "é"}


def remove(folder: Path) -> None:
    (folder / "deep" / "a").unlink()


def truncate(folder: Path) -> None:
    os.truncate(folder / "deep" / "a", 3)


def flip(folder: Path) -> None:
    path = folder / "deep" / "a"
    content = bytearray(path.read_bytes())
    content[2] ^= 1
    path.write_bytes(content)


def swap_contents(folder: Path) -> None:
    a, b = folder / "deep" / "a", folder / "deep" / "b"
    a.rename(folder / "c")
    b.rename(a)
    (folder / "c").rename(b)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (remove, "deep/a is missing"),
    "added": (lambda folder: (folder / "deep/new").touch(), "deep/new does not belong there"),
    "truncated": (truncate, "deep/a has 3 bytes instead of 6"),
    "emptied": (lambda folder: os.truncate(folder / "deep/a", 0), "deep/a has 0 bytes"),
    "flipped": (flip, "deep/a has other content"),
    "swapped": (swap_contents, "deep/a has other content than the manifest says; deep/b has"),
    "nested": (lambda folder: shutil.copytree(folder / "deep", folder / "deep/again"), "deep/again/a does not belong"),
    "manifest cut": (lambda folder: os.truncate(folder / MANIFEST, 40), "manifest.json is damaged"),
    "manifest empty": (lambda folder: (folder / MANIFEST).write_text("[]"), "manifest.json is damaged"),
    "manifest removed": (lambda folder: (folder / MANIFEST).unlink(), "has no manifest.json"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_finds_what_was(tmp_path: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    folder = make_folder(tmp_path / "out", a="aaaaaa", b="bbbbbb")
    verify(folder)
    damage(folder)
    with pytest.raises(IntegrityError, match=message):
        verify(folder)


def test_verify_by_size_reads_no_content(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "out", a="aaaaaa", b="bbbbbb")
    flip(folder)
    verify(folder, content=False)


def test_the_verify_command_names_every_damaged_folder(tmp_path: Path, run: Run) -> None:
    for name in ("one", "two", "three"):
        make_folder(tmp_path / name, a="aaaaaa")
    assert run("verify", tmp_path).code == 0
    flip(tmp_path / "one")
    remove(tmp_path / "three")
    completed = run("verify", tmp_path).ends(4, "one is damaged", "three is damaged")
    assert "two" not in completed.stderr


def test_a_stage_refuses_a_damaged_input(catalog: Catalog, tmp_path: Path, run: Run) -> None:
    scene = make_folder(tmp_path / "scene", a="aaaaaa")
    (tmp_path / "grid.json").write_text("{}")
    truncate(scene)
    run("preprocess", "--scene", scene, "--grid", tmp_path / "grid.json", "--tiles", tmp_path / "tiles").ends(
        4, "deep/a has 3 bytes instead of 6"
    )


SMALL = {"bytes": "size=200k", "files": "size=10m,nr_inodes=12"}


@pytest.mark.parametrize("short", SMALL)
def test_a_full_disk_ends_with_code_6_and_leaves_the_old_output(
    catalog: Catalog, run: Run, small_disk: Callable[[str], Path], short: str
) -> None:
    disk = small_disk(SMALL[short])
    noise = np.random.default_rng(0).integers(1, 9999, (256, 256), np.uint16)
    bands = {f"b{n}": noise[:8, :8] if short == "files" else noise for n in range(9)}
    catalog.add("old", {"b0": noise[:8, :8]}, driver="GTiff")
    catalog.add("new", bands, driver="GTiff", compress=None)
    for name in ("old", "new"):
        run(
            *("search", "--catalog", catalog.write(), "--ids", name, "--items", catalog.root / name),
            *("--grid", catalog.root / "grid.json", "--selection", catalog.root / "selection.json"),
            *("--assets", *(bands if name == "new" else ["b0"])),
        ).ends(0)
    fetch = ("fetch", "--catalog", catalog.root, "--parts", catalog.root / "parts", "--scene", disk / "scene")
    assert run(*fetch, "--item", catalog.root / "old" / "old.geojson").code == 0
    before = digest(disk / "scene")

    run(*fetch, "--item", catalog.root / "new" / "new.geojson").ends(
        6, "no space left while writing scene", "MB and", "files are free in"
    )
    verify(disk / "scene")
    assert digest(disk / "scene") == before
    assert sorted(p.name for p in disk.iterdir()) == ["scene", "scene.run.json"]
    assert run(*fetch, "--item", catalog.root / "old" / "old.geojson").code == 0, "after freeing, a rerun works"


def test_a_disk_that_fills_up_while_a_store_is_written_leaves_no_store(
    catalog: Catalog, run: Run, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("size=300k")
    noise = np.random.default_rng(0).integers(1, 9999, (512, 512), np.uint16)
    item = catalog.add("scene", {"red": noise})
    (catalog.root / "s0" / "scene.json").write_text(json.dumps(item))
    write_json(catalog.root / "grid.json", {"crs": "EPSG:32633", "shape": [512, 512], "transform": TRANSFORM})
    arguments = ("preprocess", "--scene", catalog.root / "s0", "--grid", catalog.root / "grid.json", "--bands", "red")
    run(*arguments, "--mask", "red", "--masked", 0, "--tiles", disk / "tiles.zarr", "--chunk", 64, "--shard", 128).ends(
        6, "no space left while writing tiles.zarr"
    )
    assert [p.name for p in disk.iterdir() if "run.json" not in p.name] == []


TRANSFORM = [10.0, 0.0, 500000.0, 0.0, -10.0, 5100000.0]


def test_a_disk_that_fills_up_under_gdal_is_reported_as_such(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=200k")
    noise = np.random.default_rng(0).integers(1, 9999, (512, 512), np.uint16)
    with pytest.raises(NoSpaceError, match="no space left while writing map"), publish(disk / "map.tif") as draft:
        write_raster(draft, noise, driver="GTiff", compress=None)
    assert list(disk.iterdir()) == []


def test_a_full_quota_is_reported_like_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(NoSpaceError, match="files are free"), publish(tmp_path / "out"):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


UNDER_UMASK = """
import os, sys
from pathlib import Path
from eopipe.publish import make_executable, publish
from eopipe.text_files import write_json
folder = Path(sys.argv[1])
os.umask(int(sys.argv[2], 8))
with publish(folder / "model", folder=True) as draft:
    (draft / "blocks").mkdir(mode=0o700)
    (draft / "blocks/weights").touch(mode=0o600)
    (draft / "model.json").touch(mode=0o755)
with publish(folder / "metrics.json") as draft:
    write_json(draft, {})
with publish(folder / "job.sh") as draft:
    draft.touch()
make_executable(folder / "job.sh")
(folder / "plain").mkdir()
(folder / "plain/file").touch()
"""
UMASKS = ("022", "027", "077")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("umask", UMASKS)
def test_what_is_published_has_the_mode_of_a_file_that_is_simply_created(tmp_path: Path, umask: str) -> None:
    subprocess.run([sys.executable, "-c", UNDER_UMASK, tmp_path, umask], check=True)
    model, plain = tmp_path / "model", tmp_path / "plain"
    assert (mode(plain), mode(plain / "file")) == (0o777 & ~int(umask, 8), 0o666 & ~int(umask, 8))
    assert {mode(path) for path in (model, model / "blocks")} == {mode(plain)}
    assert mode(tmp_path / "job.sh") == mode(plain), "those who can read a script can run it"
    files = (model / "blocks/weights", model / "model.json", model / MANIFEST, tmp_path / "metrics.json")
    assert {mode(path) for path in files} == {mode(plain / "file")}


def test_a_shared_folder_passes_its_group_on_to_what_is_published_in_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    subprocess.run([sys.executable, "-c", UNDER_UMASK, tmp_path, "002"], check=True)
    assert mode(tmp_path / "plain") == 0o2775
    assert {mode(tmp_path / name) for name in ("model", "model/blocks")} == {0o2775}


def test_a_file_that_is_linked_into_a_published_folder_keeps_its_mode(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.touch(mode=0o600)
    with publish(tmp_path / "crate", folder=True) as draft:
        (draft / "weights").hardlink_to(weights)
    assert mode(weights) == 0o600


@pytest.mark.parametrize("umask", UMASKS)
@pytest.mark.exhaustive
def test_every_file_of_a_stage_respects_the_umask(catalog: Catalog, tmp_path: Path, umask: str) -> None:
    noise = np.random.default_rng(0).integers(1, 9999, (40, 40), np.uint16)
    catalog.add("a", {"red": noise})
    catalog.write()
    shell = ["bash", "-c", f'umask {umask}; exec "$@"', "bash", sys.executable, "-m", "eopipe"]
    search = "search --catalog catalog --assets red --items out/items --grid out/grid.json"
    commands = (
        f"{search} --selection out/selection.json",
        "fetch --item out/items/a.geojson --catalog catalog --scene out/scenes/a",
        "preprocess --scene out/scenes/a --grid out/grid.json --bands red --mask none --tiles out/tiles/a.zarr",
    )
    for command in commands:
        subprocess.run([*shell, *command.split()], check=True, cwd=tmp_path)
    modes = {(path.is_dir(), mode(path)) for path in (tmp_path / "out").rglob("*")}
    assert modes == {(True, 0o777 & ~int(umask, 8)), (False, 0o666 & ~int(umask, 8))}
    assert len(list((tmp_path / "out").rglob("*.run.json"))) == 3
