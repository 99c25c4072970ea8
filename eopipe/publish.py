"""Atomic publish: a final name is complete or absent.

Everything is written under a temporary name beside the target, synced, listed in a manifest and renamed.
Later stages and `eopipe verify` check a folder against its manifest (path, size and sha256 of every file).
"""

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from eopipe.errors import BadInputError, EopipeError, IntegrityError, UsageError, is_full, no_space, some_of
from eopipe.processes import is_alive
from eopipe.text_files import read_json, refuse_endless, write_json

MANIFEST = "manifest.json"
# Ending of the run record beside an output.
RECORD = ".run.json"
# Not public by the rules of systemd, so that nobody can try host names until a digest fits.
MACHINE_ID = Path("/etc/machine-id")
# The name of a draft: target, host, process; and its age where the writer on another host must be gone.
DRAFT = r"\..+\.tmp-(.+)-(\d+)-[0-9a-f]{8}"
FOREIGN_DRAFT_S = 24 * 3600
# Below this a disk counts as full.
MINIMUM_FREE_BYTES = 1 << 20
TARGET_EXISTS = {errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}
# Files of a published folder that are not payload: the manifest, and what Snakemake writes there.
ENGINE = {MANIFEST, ".snakemake_timestamp"}
# Behind what a target is or contains.
NOT_REPLACED = ", which eopipe did not write and would replace; choose another path"
# The signature of `map`, as threads and plain code offer it.
MapFunction = Callable[[Callable[[str], str], Iterable[str]], Iterable[str]]


@contextmanager
def publish(target: Path, *, folder: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to; rename it to its final name if the block succeeds.

    Raises NoSpaceError when the disk or quota is full, UsageError when the target cannot be written or has something
    that eopipe did not write; the temporary files are removed then.
    """
    target = Path(target)
    refuse_foreign(target, folder=folder)
    # The final name is the last part, since some formats store the stem of the file they are written to.
    draft_folder = _draft_folder(target)
    draft = draft_folder / target.name
    try:
        modes = _make_draft_folder(target, draft_folder)
        if folder:
            draft.mkdir()
        yield draft
        if folder:
            write_manifest(draft)
        _sync_all(draft, modes)
        _rename(draft, target, draft_folder)
    except BaseException as error:
        if is_full(error) or (_is_foreign(error) and _is_disk_full(target.parent)):
            raise no_space(target) from error
        raise
    finally:
        shutil.rmtree(draft_folder, ignore_errors=True)


@dataclass(frozen=True)
class DefaultModes:
    """Permission bits of a file and a folder that are simply created: umask, setgid and default ACLs applied."""

    file: int
    folder: int


def _is_foreign(error: BaseException) -> bool:
    """Whether an error may hide a full disk, as GDAL's do."""
    return isinstance(error, Exception) and not isinstance(error, EopipeError)


def _is_disk_full(folder: Path) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize < MINIMUM_FREE_BYTES or (status.f_files > 0 and status.f_favail == 0)


def host_id() -> str:
    """Twelve letters that all processes of this machine share, also after a reboot, and that do not show its name."""
    identity = platform.node()
    with suppress(OSError):
        identity += MACHINE_ID.read_text(encoding="utf-8")
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def _draft_folder(target: Path) -> Path:
    return target.parent / f".{target.name}.tmp-{host_id()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def is_draft(name: str) -> bool:
    """Whether a name is the temporary one of something that is being written, or whose writer was killed."""
    return bool(re.fullmatch(DRAFT, name))


def _make_draft_folder(target: Path, draft_folder: Path) -> DefaultModes:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target.parent, target.name)
        draft_folder.mkdir()
        # Asked of the file system: to read the umask is to set it, for all threads of the process.
        probe = draft_folder / "mode"
        probe.touch()
        modes = DefaultModes(stat.S_IMODE(probe.stat().st_mode), stat.S_IMODE(draft_folder.stat().st_mode))
        probe.unlink()
    except OSError as error:
        if is_full(error):
            raise
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another path") from error
    return modes


def sweep(folder: Path, target: str = "") -> None:
    """Remove drafts in a folder, of one target or of all, whose writer was killed.

    A writer of this host is gone if its process is; one of another host, or of a container with another name, if
    nothing in its draft has changed for a day.
    """
    pattern = re.compile(DRAFT.replace(".+", re.escape(target), 1) if target else DRAFT)
    for path in folder.iterdir():
        if not (match := pattern.fullmatch(path.name)):
            continue
        if _age_s(path) > FOREIGN_DRAFT_S if match[1] != host_id() else not is_alive(int(match[2])):
            shutil.rmtree(path, ignore_errors=True)


def _age_s(draft: Path) -> float:
    """Seconds since anything in a draft has changed; 0 for one that disappears meanwhile."""
    with suppress(OSError):
        return time.time() - max(path.stat().st_mtime for path in (draft, *draft.rglob("*")))
    return 0.0


def make_executable(path: Path) -> None:
    """Let everybody run a file who can read it, as the umask has it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | (mode & 0o444) >> 2)


def _sync_all(draft: Path, modes: DefaultModes) -> None:
    for path in [draft, *draft.rglob("*")] if draft.is_dir() else [draft]:
        # Some libraries write through private temporary files, which others could not read.
        status, mode = path.stat(), modes.folder if path.is_dir() else modes.file
        # The mode of a hard-linked file belongs to the file that it was linked from.
        is_linked = status.st_nlink > 1 and not path.is_dir()
        if stat.S_IMODE(status.st_mode) != mode and not is_linked:
            path.chmod(mode)
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename(draft: Path, target: Path, draft_folder: Path) -> None:
    """Replace the target; with several writers of one target each result is whole, and the last one stays."""
    # Again, for hours may have passed.
    refuse_foreign(target, folder=draft.is_dir())
    for attempt in count():
        # A folder replaces only an empty folder, so the previous one is moved out first.
        with suppress(FileNotFoundError):
            if target.is_dir():
                target.rename(draft_folder / f"previous-{attempt}")
        try:
            draft.replace(target)
            break
        except OSError as error:
            if error.errno not in TARGET_EXISTS:
                raise
    _sync(target.parent)


def refuse_foreign(target: Path, *, folder: bool) -> None:
    """Raise UsageError where a target is, or has, what eopipe did not write: it is never replaced."""
    if conflict := foreign_conflict(target, folder=folder):
        raise UsageError(f"{conflict}{NOT_REPLACED}")


def foreign_conflict(target: Path, *, folder: bool) -> str:
    """Why a target is not replaced: it is, or has, what eopipe did not write; empty if it may be."""
    if target.is_file() if folder else target.is_dir():
        return f"{target} is a {'file' if folder else 'folder'}"
    content = foreign_content(target) if folder else ""
    return f"{target} contains {content}" if content else ""


def foreign_content(folder: Path) -> str:
    """What a folder contains that is not in its manifest, so that eopipe did not write it; empty if nothing.

    Where an engine has removed the manifest, the run record says how many files a completed job wrote.
    """
    while True:  # Another writer may replace the folder meanwhile.
        with suppress(FileNotFoundError):
            if not (before := _identity(folder)):
                # Nothing is there. It may come, and go again, while it is read.
                return ""
            content = _foreign_content(folder)
            if _identity(folder) == before:
                return content


def _identity(folder: Path) -> tuple[int, ...]:
    with suppress(OSError):
        return (status := folder.stat()).st_ino, status.st_ctime_ns
    return ()


def _foreign_content(folder: Path) -> str:
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
    names = present - ENGINE
    with suppress(IntegrityError):
        return some_of(sorted(names - manifest_rows(folder).keys()), 3)
    # A record that is missing or damaged says nothing, one of a failed job that the files are of the job before.
    with suppress(BadInputError, KeyError, TypeError):
        rows = read_json(folder.parent / f"{folder.name}{RECORD}")["outputs"]
        counts = [row["files"] for row in rows if row["name"] == folder.name] or [len(names)]
        return f"{len(names)} files instead of {counts[0]}" if len(names) > counts[0] else ""
    return some_of(sorted(names or present & {MANIFEST}), 3)


def remove_folder(folder: Path) -> None:
    """Remove a folder that was published; after a kill no part of it is left under its name."""
    draft = _draft_folder(folder)
    folder.rename(draft)
    shutil.rmtree(draft)


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex. Raises BadInputError for a pipe or a device, which may have no end."""
    refuse_endless(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files(folder: Path) -> list[Path]:
    """The payload of a folder: its files without the manifest and without an engine's files."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.relative_to(folder).as_posix() not in ENGINE)


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder that a person works in, without hidden ones and the byte code that Python leaves there."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = ((path, path.relative_to(folder).parts) for path in paths)
    return [path for path, parts in names if not any(name.startswith((".", "__pycache__")) for name in parts)]


def content_digest(path: Path) -> str:
    """The sha256 of a file, or of the names and contents of the visible files of a folder without a manifest."""
    if path.is_file():
        return sha256(path)
    rows = (f"{sha256(file)}  {file.relative_to(path).as_posix()}\n" for file in visible_files(path))
    return hashlib.sha256("".join(rows).encode()).hexdigest()


def write_manifest(folder: Path) -> None:
    """List every file of a folder with its size and sha256."""
    rows = [
        {"path": p.relative_to(folder).as_posix(), "size": p.stat().st_size, "sha256": sha256(p)} for p in files(folder)
    ]
    write_json(folder / MANIFEST, {"files": rows})


def link_or_copy(source: Path, target: Path, *, link: bool = True) -> None:
    """Put a file or folder under another name, hard-linked where the file system allows, else copied.

    A hard link costs no space and stays a snapshot: a published file is never written into but replaced. A folder
    without a manifest is copied, since its files may be written into, and gets a manifest.
    """
    if source.is_file():
        _link_or_copy_file(source, target, link)
        return
    is_published = (source / MANIFEST).is_file()
    for file in [*files(source), *([source / MANIFEST] if is_published else [])]:
        _link_or_copy_file(file, target / file.relative_to(source), link and is_published)
    if not is_published:
        write_manifest(target)


def _link_or_copy_file(source: Path, target: Path, link: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if link:
        # A link fails across file systems, and where there are none; then the file is copied.
        with suppress(OSError):
            # An engine may have staged a symbolic link, which would lead out of the target folder.
            os.link(source.resolve(), target)
            return
    shutil.copyfile(source, target)


def digest(path: Path) -> str:
    """The sha256 of a file, or of the manifest of a published folder."""
    return sha256(path / MANIFEST if path.is_dir() else path)


def published_digest(path: Path) -> str:
    """The digest of a file or a published folder; empty for another folder, and for what is not there."""
    return digest(path) if path.is_file() or (path / MANIFEST).is_file() else ""


def size(path: Path) -> tuple[int, int]:
    """Bytes and number of files of a published file or folder."""
    payload = files(path) if path.is_dir() else [path]
    return sum(p.stat().st_size for p in payload), len(payload)


def verify(*folders: Path, content: bool = True) -> None:
    """Compare published folders with their manifests; `content=False` compares names and sizes only.

    Raises IntegrityError that lists every removed, added, truncated or changed file of the first damaged one.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        if len(folders) == 1:
            damages = iter([find_damage(folders[0], pool.map, content=content)])
        else:
            damages = pool.map(lambda folder: find_damage(folder, map, content=content), folders)
        for folder, damage in zip(folders, damages, strict=True):
            if damage:
                raise IntegrityError(damage_message(folder, damage))


@dataclass(frozen=True)
class Damage:
    """One difference from the manifest or run record; `extra` is the path of a file that is in neither."""

    message: str
    extra: Path | None = None


def damage_message(path: Path, damage: list[Damage]) -> str:
    """The sentence that describes the damage of a published file or folder."""
    details = "; ".join(sorted(entry.message for entry in damage))
    return f"{path} is damaged: {details}; remove it and run the stage again"


def find_damage(folder: Path, map_files: MapFunction, *, content: bool = True) -> list[Damage]:
    """Compare a published folder with its manifest; `map_files` is the map of a thread pool, or `map`."""
    try:
        rows = manifest_rows(folder)
    except IntegrityError as error:
        return [Damage(str(error))]
    present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    extra = sorted(present.keys() - rows.keys() - ENGINE)
    damage = [Damage(f"{name} does not belong there", present[name]) for name in extra]
    damage += [Damage(f"{name} is missing") for name in rows.keys() - present.keys()]
    # Large files first, so that no thread is left alone with one at the end.
    common = sorted(rows.keys() & present.keys(), key=lambda name: -rows[name][0])
    messages = map_files(lambda name: _compare(name, present[name], rows[name], content), common)
    return damage + [Damage(message) for message in messages if message]


def manifest_rows(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and sha256 of every file that a manifest lists. Raises IntegrityError where it is missing or damaged."""
    if not (folder / MANIFEST).is_file():
        raise IntegrityError(f"it has no {MANIFEST}, so it was not published completely")
    try:
        return {row["path"]: (row["size"] + 0, row["sha256"]) for row in read_json(folder / MANIFEST)["files"]}
    except (BadInputError, KeyError, TypeError) as error:
        raise IntegrityError(f"{MANIFEST} is damaged") from error


def _compare(name: str, path: Path, row: tuple[int, str], content: bool) -> str:
    """The message for a damaged file; empty if it is intact."""
    expected_size, checksum = row
    try:
        size = path.stat().st_size
        if size != expected_size:
            return f"{name} has {size} bytes instead of {expected_size}"
        return f"{name} has other content than the manifest says" if content and sha256(path) != checksum else ""
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
