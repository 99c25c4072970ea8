"""Snakemake's records of jobs: one database in the project, whatever starts a run.

By them Snakemake sees that options, inputs or the code of a rule have changed, and which outputs a killed run left
incomplete. An output without a record is taken as it is, so all runs of a project have to keep them in one place.

| internal | use | why | versions |
|---|---|---|---|
| `Workflow.workflow_settings.persistence_backend` | set to the database | else a profile decides, and a run with \
another profile sees no change; and files would be one for each output | 9.18.1 to 9.27.1 |
| `DbPersistence.namespace` | replaced by a constant | it is the absolute path of the project, so that a project which \
was moved or copied had no records | 9.18.1 to 9.27.1 |
| `FilePersistence`: its folders `metadata` and `incomplete` | read, then removed | records that earlier runs wrote as \
files | 9.18.1 to 9.27.1 |
| tables `snakemake_metadata` and `snakemake_locks` | read and written | records of another path; inputs that were \
replaced by older files, since Snakemake compares times; locks of a killed run | 9.18.1 to 9.27.1 |
"""

import json
import shutil
import sqlite3
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eopipe.contract import STAGES
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.publish import MANIFEST, RECORD, sha256
from eopipe.run.rules import named_paths
from eopipe.text_files import read_json

SNAKEMAKE_FOLDER = Path(".snakemake")
DATABASE = SNAKEMAKE_FOLDER / "metadata.db"
# Keys of records are relative to the project.
NAMESPACE, OF_FILES = ".", "files"
# Run records of the stages that may read files of the user; scenes and their stores have none of those.
RECORD_PLACES = [f"{folder}*{RECORD}" for folder in ("", "labels/", "folds/", "members/", "trials/", "trials/*/")]
# The latest of several records of an output stays.
OLDER = """
DELETE FROM snakemake_metadata AS old WHERE EXISTS (
  SELECT 1 FROM snakemake_metadata AS new WHERE new.target = old.target
  AND max(coalesce(new.starttime, 0), coalesce(new.endtime, 0))
    > max(coalesce(old.starttime, 0), coalesce(old.endtime, 0)))"""


def see_every_change(workflow: Any, config: dict[str, Any]) -> None:
    """Let Snakemake have all of its records, in the database of the project, and see which inputs were replaced.

    A database that a user names (`--persistence-backend-db-url`) stays. Raises UsageError for a version of Snakemake
    with other internals, and IntegrityError where the database is damaged.
    """
    try:
        _use_database(workflow.workflow_settings)
        # Jobs have Snakemakes of their own, at the same time.
        if workflow.workflow_settings.exec_mode.name == "DEFAULT":
            _adopt_files()
            _complete_records(_made_of_replaced_files(config))
    except sqlite3.DatabaseError as error:
        raise IntegrityError(
            f"{DATABASE}, where Snakemake keeps its records of jobs, cannot be read: {error}; remove it, and since "
            "changes before that are then not seen, check the results with `eopipe verify`"
        ) from error
    except (AttributeError, ImportError) as error:
        raise UsageError(
            f"Snakemake {version('snakemake')} keeps its records of jobs otherwise than the versions that eopipe was "
            f"tested with, 9.18 to 9.27: {error}"
        ) from error


def _made_of_replaced_files(config: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Outputs of jobs that read a file of the user which has other content now, each with that file.

    One that is newer than the output is Snakemake's to see. Only a file whose inode has changed since is read.
    """
    results = Path(config["results"])
    for name in STAGES:
        files = [Path(path) for path in named_paths(config, name)]
        for record_file in [file for place in RECORD_PLACES for file in results.glob(place)] if files else []:
            with suppress(BadInputError, KeyError, TypeError):
                record = read_json(record_file)
                made_s = record_file.stat().st_mtime if record["stage"] == name else 0
                changed = [file for file in files if _is_replaced(file, record["inputs"], made_s)]
                output = record_file.with_name(record_file.name.removesuffix(RECORD))
                yield from ((str(output / MANIFEST if output.is_dir() else output), file) for file in changed[:1])


def _is_replaced(file: Path, inputs: list[dict[str, Any]], made_s: float) -> bool:
    """Whether a file is older than what was made of it, and not the one that was read, by its digest."""
    name = file.parent.name if file.name == MANIFEST else file.name
    digests = {row["sha256"] for row in inputs if row["name"] == name} - {""}
    if not digests or not file.is_file():
        return False
    status = file.stat()
    return status.st_mtime <= made_s < status.st_ctime and sha256(file) not in digests


def _use_database(settings: Any) -> None:
    from snakemake.persistence.db import DbPersistence
    from snakemake.settings.types import PersistenceBackend

    if not settings.persistence_backend_db_url:
        settings.persistence_backend = PersistenceBackend.DB
        DbPersistence.namespace = property(lambda _: NAMESPACE, lambda *_: None)


def _adopt_files() -> None:
    """Write the records of earlier runs, a file each, into the database, and remove the files."""
    records = [*_records_of_files()]
    if records:
        from snakemake.persistence.db import DbPersistence, MetadataRecordORM, Session

        with Session(DbPersistence(path=SNAKEMAKE_FOLDER).engine) as session:
            for target, record in records:
                session.merge(MetadataRecordORM(namespace=OF_FILES, target=target, **record.model_dump()))
            session.commit()
    for name in ("metadata", "incomplete"):
        shutil.rmtree(SNAKEMAKE_FOLDER / name, ignore_errors=True)


def _records_of_files() -> Iterator[tuple[str, Any]]:
    """Output and record of each file; an output that a killed run began may have no record yet."""
    from snakemake.persistence import MetadataRecord

    incomplete = {_output_of(path, "incomplete"): path for path in _files_in("incomplete")}
    for path in _files_in("metadata"):
        # Snakemake ignores a record that was not written to its end.
        try:
            record = MetadataRecord.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:
            continue
        output = _output_of(path, "metadata")
        record.incomplete = incomplete.pop(output, None) is not None
        yield output, record
    for output, path in incomplete.items():
        yield output, MetadataRecord(incomplete=True, starttime=path.stat().st_mtime)


def _files_in(name: str) -> list[Path]:
    return [
        path for path in (SNAKEMAKE_FOLDER / name).rglob("*") if path.is_file() and path.name != "migration_underway"
    ]


def _output_of(path: Path, folder: str) -> str:
    """The output that a record is of: its name is in base64, in pieces where it is long."""
    pieces = path.relative_to(SNAKEMAKE_FOLDER / folder).parts
    return urlsafe_b64decode("".join(piece.removeprefix("@") for piece in pieces)).decode()


def _complete_records(made_of_replaced: Iterable[tuple[str, Path]]) -> None:
    """Name all records alike, also from files and from another folder, and mark those whose input was replaced."""
    if not DATABASE.is_file():
        return
    with closing(sqlite3.connect(DATABASE)) as connection, connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "snakemake_metadata" not in tables:
            return
        others = connection.execute("SELECT 1 FROM snakemake_metadata WHERE namespace != ? LIMIT 1", (NAMESPACE,))
        if others.fetchone():
            connection.execute(OLDER)
            connection.execute("UPDATE OR REPLACE snakemake_metadata SET namespace = ?", (NAMESPACE,))
        for output, file in made_of_replaced:
            inputs = json.dumps([f"{file} with other content"])
            connection.execute("UPDATE snakemake_metadata SET input = ? WHERE target = ?", (inputs, output))


def has_locks(folder: Path) -> bool:
    """Whether a Snakemake in a project runs, or was killed: it has locked its files."""
    if not (folder / DATABASE).is_file():
        return False
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        try:
            return bool(connection.execute("SELECT 1 FROM snakemake_locks LIMIT 1").fetchone())
        except sqlite3.DatabaseError:
            # The workflow says what is wrong with it.
            return False
