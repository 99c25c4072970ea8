"""A final name is complete or absent, and a manifest finds everything that changed afterwards."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from builders import noise
from scenery import CRS, LEFT, STEP, TOP, Catalog, Run, Search, write_raster

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
def test_an_exception_leaves_nothing_new_and_the_output_as_it_was(tmp_path: Path, folder: bool, is_new: bool) -> None:
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


# A call of the operating system: `sync`, the path and what the file held then, or `rename`, the source and the target.
Call = tuple[str, Path, bytes | Path]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What is synced and renamed from here on, in its order; it is done as ever."""
    recorded: list[Call] = []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def sync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        real["fsync"](handle)
        recorded.append(("sync", path, path.read_bytes() if path.is_file() else b""))

    def rename(name: str, source: Path, target: Path) -> None:
        real[name](source, target)
        recorded.append(("rename", Path(source), Path(target)))

    monkeypatch.setattr(os, "fsync", sync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, partial(rename, name))
    return recorded


# A kill loses nothing that was written, so only the order of the calls can show what a power failure would do.
@pytest.mark.parametrize("is_new", [True, False])
def test_a_folder_is_replaced_as_a_whole_and_all_of_it_synced_before_the_rename_and_the_parent_after_it(
    tmp_path: Path, calls: list[Call], is_new: bool
) -> None:
    target = tmp_path / "out"
    if not is_new:
        make_folder(target, old="0")
        calls.clear()
    make_folder(target, a="1", b="2")
    (at,) = (number for number, (*_, of_call) in enumerate(calls) if of_call == target)
    draft = calls[at][1]
    synced = {path.relative_to(draft).as_posix(): content for name, path, content in calls[:at] if name == "sync"}
    assert synced.keys() == {".", "deep", "deep/a", "deep/b", MANIFEST}
    files = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert {name: content for name, content in synced.items() if content} == files, "nothing is written after it"
    assert ("sync", tmp_path, b"") in calls[at:]
    verify(target)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_file_is_synced_before_the_rename_and_its_folder_after_it(tmp_path: Path, calls: list[Call]) -> None:
    target = tmp_path / "out.json"
    with publish(target) as draft:
        write_json(draft, {"a": 1})
    assert calls == [("sync", draft, target.read_bytes()), ("rename", draft, target), ("sync", tmp_path, b"")]


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


def test_kill_9_leaves_no_final_name_and_the_next_run_sweeps_the_draft_that_it_keeps_of_a_living_writer(
    tmp_path: Path,
) -> None:
    target = tmp_path / "out [1]*"
    with writer(target):
        assert not target.exists()
        make_folder(target, a="1")
        (draft,) = (path for path in tmp_path.iterdir() if path != target)
        assert (draft / target.name / "half").read_text() == "half"
        target.rename(tmp_path / "away")
    # The writer was killed.
    assert not target.exists()
    assert draft.exists()
    make_folder(target, a="1")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "away", target]


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
    yesterday = (time.time() - 25 * 3600,) * 2
    # Its writer works; it is of another output; it is neither.
    for old, published, is_kept in ((), "out", True), ((file,), "other", True), ((), "out", False):
        for path in (*old, other_draft / "out", other_draft):
            os.utime(path, yesterday)
        make_folder(tmp_path / published, a="1")
        assert file.exists() == other_draft.exists() == is_kept


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


# What files of a folder with deep/a (six times a) and deep/b hold afterwards, None if they are removed.
DAMAGES: dict[str, tuple[dict[str, str | None], str]] = {
    "removed": ({"deep/a": None}, "deep/a is missing"),
    "added": ({"deep/new": ""}, "deep/new does not belong there"),
    "truncated": ({"deep/a": "aaa"}, "deep/a has 3 bytes instead of 6"),
    "emptied": ({"deep/a": ""}, "deep/a has 0 bytes"),
    "flipped": ({"deep/a": "aacaaa"}, "deep/a has other content"),
    "swapped": ({"deep/a": "bbbbbb", "deep/b": "aaaaaa"}, "deep/a has other content than the .*; deep/b has"),
    "nested": ({"deep/again/a": "aaaaaa"}, "deep/again/a does not belong"),
    "manifest cut": ({MANIFEST: '{"files": [{"path": "deep/a", "size": 6'}, "manifest.json is damaged"),
    "manifest empty": ({MANIFEST: "[]"}, "manifest.json is damaged"),
    "manifest removed": ({MANIFEST: None}, "has no manifest.json"),
}


def damaged(folder: Path, name: str) -> Path:
    """A folder that was damaged after it was published."""
    make_folder(folder, a="aaaaaa", b="bbbbbb")
    verify(folder)
    for file, text in DAMAGES[name][0].items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).unlink() if text is None else (folder / file).write_text(text)
    return folder


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_finds_what_was(tmp_path: Path, name: str) -> None:
    with pytest.raises(IntegrityError, match=DAMAGES[name][1]):
        verify(damaged(tmp_path / "out", name))


def test_verify_by_size_reads_no_content_and_the_command_names_every_damaged_folder(tmp_path: Path, run: Run) -> None:
    for name in ("one", "two", "three"):
        make_folder(tmp_path / name, a="aaaaaa", b="bbbbbb")
    assert run("verify", tmp_path).code == 0
    verify(damaged(tmp_path / "one", "flipped"), content=False)
    damaged(tmp_path / "three", "removed")
    completed = run("verify", tmp_path).ends(4, "one is damaged", "three is damaged")
    assert "two" not in completed.stderr


def test_a_stage_refuses_a_damaged_input(tmp_path: Path, run: Run) -> None:
    scene = damaged(tmp_path / "scene", "truncated")
    (tmp_path / "grid.json").write_text("{}")
    words = ("--scene", scene, "--grid", tmp_path / "grid.json", "--tiles", tmp_path / "tiles")
    run("preprocess", *words).ends(4, DAMAGES["truncated"][1])


SMALL = {"bytes": "size=200k", "files": "size=10m,nr_inodes=12"}


@pytest.mark.parametrize("short", SMALL)
def test_a_full_disk_ends_with_code_6_and_leaves_the_old_output(
    catalog: Catalog, run: Run, search: Search, small_disk: Callable[[str], Path], short: str
) -> None:
    disk = small_disk(SMALL[short])
    pixels = noise(256, 256)
    bands = {f"b{n}": pixels[:8, :8] if short == "files" else pixels for n in range(9)}
    catalog.add("old", {"b0": pixels[:8, :8]}, driver="GTiff")
    catalog.add("new", bands, driver="GTiff", compress=None)
    for name, assets in (("old", ["b0"]), ("new", bands)):
        search(catalog.write(), "--ids", name, "--assets", *assets).ends(0)
        search.items.rename(catalog.root / name)
    fetch = ("fetch", "--catalog", catalog.root, "--parts", catalog.root / "parts", "--scene", disk / "scene")
    assert run(*fetch, "--item", catalog.root / "old" / "old.geojson").code == 0
    before = digest(disk / "scene")
    new = run(*fetch, "--item", catalog.root / "new" / "new.geojson")
    new.ends(6, "no space left while writing scene", "MB and", "files are free in")
    verify(disk / "scene")
    assert digest(disk / "scene") == before
    assert sorted(p.name for p in disk.iterdir()) == ["scene", "scene.run.json"]
    assert run(*fetch, "--item", catalog.root / "old" / "old.geojson").code == 0, "after freeing, a rerun works"


def test_a_disk_that_fills_up_leaves_no_store(catalog: Catalog, run: Run, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=300k")
    item, transform = catalog.add("scene", {"red": noise(512, 512)}), [STEP, 0.0, LEFT, 0.0, -STEP, TOP]
    write_json(catalog.root / "s0" / "scene.json", item)
    write_json(catalog.root / "grid.json", {"crs": CRS, "shape": [512, 512], "transform": transform})
    words = ("--scene", catalog.root / "s0", "--grid", catalog.root / "grid.json", "--bands", "red", "--mask", "red")
    tiles = ("--masked", 0, "--tiles", disk / "tiles.zarr", "--chunk", 64, "--shard", 128)
    run("preprocess", *words, *tiles).ends(6, "no space left while writing tiles.zarr")
    assert [p.name for p in disk.iterdir() if "run.json" not in p.name] == []


def test_a_disk_that_fills_up_under_gdal_is_reported_as_such(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=200k")
    with pytest.raises(NoSpaceError, match="no space left while writing map"), publish(disk / "map.tif") as draft:
        write_raster(draft, noise(512, 512), driver="GTiff", compress=None)
    assert list(disk.iterdir()) == []


def test_a_full_quota_is_reported_like_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(NoSpaceError, match="files are free"), publish(tmp_path / "out"):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_file_that_is_linked_into_a_published_folder_keeps_its_mode(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.touch(mode=0o600)
    with publish(tmp_path / "crate", folder=True) as draft:
        (draft / "weights").hardlink_to(weights)
    assert mode(weights) == 0o600


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


# A folder with setgid passes its group on to what is published in it.
@pytest.mark.parametrize(("umask", "setgid"), [*((umask, 0) for umask in UMASKS), ("002", 0o2000)])
def test_what_is_published_has_the_mode_of_a_file_that_is_simply_created(
    tmp_path: Path, umask: str, setgid: int
) -> None:
    tmp_path.chmod(0o775 | setgid)
    subprocess.run([sys.executable, "-c", UNDER_UMASK, tmp_path, umask], check=True)
    model, plain = tmp_path / "model", tmp_path / "plain"
    assert (mode(plain), mode(plain / "file")) == (0o777 & ~int(umask, 8) | setgid, 0o666 & ~int(umask, 8))
    assert {mode(path) for path in (model, model / "blocks")} == {mode(plain)}
    assert mode(tmp_path / "job.sh") == mode(plain) & 0o777, "those who can read a script can run it"
    files = (model / "blocks/weights", model / "model.json", model / MANIFEST, tmp_path / "metrics.json")
    assert {mode(path) for path in files} == {mode(plain / "file")}


@pytest.mark.parametrize("umask", UMASKS)
@pytest.mark.exhaustive
def test_every_file_of_a_stage_respects_the_umask(catalog: Catalog, tmp_path: Path, umask: str) -> None:
    catalog.add("a", {"red": noise(40, 40)})
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
