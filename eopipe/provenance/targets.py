"""What lies where a stage wants to write: what it made before may be replaced, nothing else."""

from pathlib import Path
from typing import Any

from eopipe.contract import Output, Stage
from eopipe.errors import UsageError
from eopipe.provenance.record import record_path
from eopipe.publish import ENGINE, MANIFEST, read_json


def refuse_others(stage: Stage, values: dict[str, Any]) -> None:
    """Raise UsageError that lists every output in whose place lies a folder, or a file, that the stage did not make."""
    places = {port: values[port.name] for port in stage.of(Output) if values[port.name] is not None}
    maker = _maker(next(iter(places.values())))
    wrong = []
    for port, place in places.items():
        folder = isinstance(port.mark, Output) and port.mark.folder
        if place.is_file() if folder else place.is_dir():
            wrong.append(f"{port.flag} {place} is a {'file' if folder else 'folder'}")
        elif folder and maker != stage.name and _holds_others(place, maker):
            wrong.append(f"{port.flag} {place} holds {f'what {maker} made' if maker else 'other files'}")
    if wrong:
        raise UsageError(f"{stage.name} would replace what it did not make: {'; '.join(wrong)}; choose another place")


def _maker(first: Path) -> str:
    """The stage whose run record lies beside its first output; empty if there is none."""
    record = record_path(first)
    return str(read_json(record)["stage"]) if record.is_file() else ""


def _holds_others(folder: Path, maker: str) -> bool:
    """Whether a folder holds anything, and more than what was published without a record."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return bool(names - ENGINE) and (bool(maker) or MANIFEST not in names)
