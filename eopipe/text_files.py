"""Text and JSON of files that others may have made: of regular files alone, and of a bounded number of bytes."""

import json
import stat
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError, RefusedError

MAX_TEXT = 1 << 29


def refuse_endless(path: Path) -> None:
    """Raise BadInputError for a pipe, a socket or a device, which may have no end; also behind a link."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInputError(f"{path} is a pipe or a device, not a file; write it to a file first")


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, without the mark that may begin it.

    Raises OSError and UnicodeDecodeError as `open` does, BadInputError for a pipe or a device, RefusedError above 512
    MiB.
    """
    refuse_endless(path)
    if (size := path.stat().st_size) > MAX_TEXT:
        raise RefusedError(f"{path} has {size >> 20} MiB, and at most {MAX_TEXT >> 20} MiB of a text are read")
    return path.read_text(encoding="utf-8-sig")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON so that the same value gives the same bytes; without indent on one line."""
    between = None if indent else (",", ":")
    text = json.dumps(value, indent=indent, separators=between, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises BadInputError with its path if it cannot be read or parsed."""
    try:
        return json.loads(read_text(Path(path)))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not valid JSON: {error}") from error
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from error
