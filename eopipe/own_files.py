"""What commands beside the stages may replace: files that they wrote themselves, never one of the user.

A command knows its own files by their bytes, or by a mark: words near their beginning that only this command writes. An
own file that was edited below its mark is replaced.
"""

import filecmp
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from eopipe.errors import UsageError, some_of
from eopipe.publish import MANIFEST, NOT_REPLACED, make_executable, publish, visible_files

# A mark is in the first bytes of a file. The tags of a GeoTIFF are behind its header.
HEAD_BYTES = 1 << 16


def write_files(folder: Path, contents: Mapping[str, str | Path], *marks: str) -> None:
    """Write texts and copies of files into a folder, by their names there: all of them, or none.

    The first name is the last to appear. Raises UsageError that lists the files of the user that they would replace, or
    that are in a folder with a manifest; NoSpaceError on a full disk.
    """
    targets = {folder / name: content for name, content in contents.items()}
    missing = {parent for target in targets for parent in target.parents if not parent.exists()}
    complete = [target.parent for target in targets if target.name == MANIFEST]
    others = [path for place in complete for path in visible_files(place) if path not in targets]
    try:
        with ExitStack() as stack:
            drafts = {target: stack.enter_context(publish(target)) for target in targets}
            for target, draft in drafts.items():
                _write(draft, targets[target])
            known = {path for path, draft in drafts.items() if not is_foreign(path, *marks) or _is_same(path, draft)}
            _refuse([*others, *(drafts.keys() - known)])
    except BaseException:
        for path in sorted(missing, reverse=True):
            with suppress(OSError):
                path.rmdir()
        raise
    for target, content in targets.items():
        if isinstance(content, str) and content.startswith("#!"):
            make_executable(target)


def refuse_foreign_file(path: Path | None, *marks: str) -> None:
    """Raise UsageError for the place of a file where there is something without a mark."""
    _refuse([path] if path and is_foreign(path, *marks) else [])


def is_foreign(path: Path, *marks: str) -> bool:
    """Whether something without a mark is at the place of a file; an empty file has nothing to lose."""
    if not path.is_file():
        return os.path.lexists(path)
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return True
    return head != b"" and not any(mark.encode() in head for mark in marks)


def _refuse(paths: Iterable[Path]) -> None:
    if names := sorted(map(str, paths)):
        raise UsageError(f"there is {some_of(names)}{NOT_REPLACED}")


def _is_same(path: Path, draft: Path) -> bool:
    with suppress(OSError):
        return path.is_file() and filecmp.cmp(path, draft, shallow=False)
    return False


def _write(draft: Path, content: str | Path) -> None:
    with draft.open("wb") as file:
        if isinstance(content, str):
            file.write(content.encode())
        else:
            with content.open("rb") as source:
                shutil.copyfileobj(source, file)
        file.flush()
        # Some file systems say only now that there is no space.
        os.fsync(file.fileno())
