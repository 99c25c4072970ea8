"""What Snakemake remembers of a project is the same for every profile, for a copy, and after a killed run."""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from projects import ROOT, Project, environment
from snakemake.persistence.db import DbPersistence, MetadataRecordORM
from snakemake.persistence.file import FilePersistence
from sqlalchemy import select
from sqlalchemy.orm import Session

from eopipe.run.job_records import DATABASE, SNAKEMAKE_FOLDER

PROFILES = sorted(path.name for path in (ROOT / "profiles").iterdir())
STARTS = ("plain", *PROFILES)
LABELS = "results/labels/all.zarr/manifest.json"
OF_REPORT = ["all", "catalog", "crate", "report"]


@pytest.fixture
def copy(finished: Project, tmp_path: Path) -> Project:
    return copied(finished, tmp_path / "copy")


def copied(project: Project, to: Path) -> Project:
    subprocess.run(["cp", "--archive", project.folder, to], check=True)
    return Project(to)


def start_options(folder: Path, start: str) -> list[str]:
    if start == "plain":
        return ["--cores", "2"]
    profile = folder / "profiles" / start
    if not profile.exists():
        shutil.copytree(ROOT / "profiles" / start, profile)
        # Not every version of the bars prints what a dry run lists.
        lines = (profile / "config.yaml").read_text().splitlines()
        (profile / "config.yaml").write_text("\n".join(line for line in lines if not line.startswith("logger:")))
    return ["--profile", str(profile)]


def snakemake(project: Project, start: str, *arguments: str) -> str:
    command = ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "config.yaml"]
    done = subprocess.run(
        [*command, *start_options(project.folder, start), *arguments],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def planned(project: Project, start: str, *arguments: str) -> list[str]:
    """The rules in the table that a dry run prints first."""
    text = snakemake(project, start, "--dry-run", *arguments)
    return sorted(set(re.findall(r"^ *(\w+) +\d+ *$", text, re.MULTILINE)) - {"total"})


def change(project: Project, section: str = "label", **settings: object) -> None:
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    config[section] |= settings
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("start", STARTS)
def test_each_profile_sees_a_change_since_a_run_without_one(start: str, copy: Project) -> None:
    # A job before the report would be here too if its options were other ones in this profile.
    change(copy, "report", title="other")
    assert planned(copy, start) == OF_REPORT


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", ["plain", "local"])
def test_each_profile_sees_a_change_since_a_run_with_another(start: str, project: Project) -> None:
    snakemake(project, start, "--", LABELS)
    assert {name: planned(project, name, "--", LABELS) for name in STARTS} == {name: [] for name in STARTS}
    change(project, bins=[40])
    assert {name: planned(project, name, "--", LABELS) for name in STARTS} == {name: ["label"] for name in STARTS}


def test_records_that_earlier_runs_wrote_as_files_are_taken_over(
    copy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.folder)
    as_files(latest=dict(records()))
    assert planned(copy, "plain") == []
    assert not (SNAKEMAKE_FOLDER / "metadata").exists()
    change(copy, bins=[40])
    assert planned(copy, "slurm", "--until", "label") == ["label"]


def test_of_a_file_and_the_database_the_later_record_counts(copy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy.folder)
    of_other_options = {output: record for output, record in records() if record.rule == "label"}
    for seconds, rerun in ((-1, []), (1, ["label"])):
        for record in of_other_options.values():
            record.params, record.endtime = ["other"], (copy.folder / LABELS).stat().st_mtime + seconds
        as_files(latest=of_other_options, keep_database=True)
        assert planned(copy, "slurm", "--until", "label") == rerun


def test_an_output_that_a_killed_run_left_incomplete_is_made_again_by_any_profile(
    copy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.folder)
    as_files(latest=dict(records()))
    FilePersistence(path=SNAKEMAKE_FOLDER.absolute())._mark_incomplete(LABELS, None)
    assert planned(copy, "slurm", "--until", "label") == ["label"]


def test_a_project_that_was_moved_or_copied_sees_no_change_and_then_each(copy: Project, tmp_path: Path) -> None:
    moved = Project(tmp_path / "elsewhere")
    copy.folder.rename(moved.folder)
    for project, start in ((moved, "plain"), (copied(moved, tmp_path / "again"), "slurm")):
        change(project, "report", title="other")
        assert planned(project, start) == OF_REPORT


def test_records_of_the_path_where_an_earlier_version_ran_are_taken_over(copy: Project) -> None:
    with closing(sqlite3.connect(copy.folder / DATABASE)) as database, database:
        database.execute("UPDATE snakemake_metadata SET namespace = '/old/.snakemake'")
        # Since then the project was elsewhere, too, with other options.
        database.execute(
            "INSERT INTO snakemake_metadata (namespace, target, params, record_format_version, endtime) "
            f"VALUES ('/older/.snakemake', '{LABELS}', '[\"other\"]', 6, 1)"
        )
    assert planned(copy, "plain") == []
    change(copy, bins=[40])
    assert planned(copy, "plain", "--until", "label") == ["label"]


def test_locks_of_a_killed_run_are_removed_by_eopipe_run(copy: Project) -> None:
    with closing(sqlite3.connect(copy.folder / DATABASE)) as database, database:
        database.execute(f"INSERT INTO snakemake_locks VALUES ('.', '{LABELS}', 'output')")
    change(copy, bins=[40])
    done = copy.run("--", LABELS)
    assert done.returncode == 0, done.stdout


def test_damaged_records_are_one_sentence(copy: Project) -> None:
    (copy.folder / DATABASE).write_bytes(b"no database" * 100)
    done = copy.run("--dry-run")
    assert done.returncode != 0
    assert ".snakemake/metadata.db, where Snakemake keeps its records of jobs, cannot be read" in done.stdout
    assert "Traceback" not in done.stdout


SOURCE = "sample/tree_cover_density_2018.tif"
# Of every run after the labels; the maps and what is made of them.
OF_MODEL = ["all", "calibrate", "catalog", "crate", "evaluate", "export", "predict", "report"]
OF_LABELS = sorted([*OF_MODEL, "label", "split", "train"])


def replace_labels(project: Project, seconds: int) -> None:
    """Other labels under the same name, from so many seconds after the run."""
    made_s = (project.folder / LABELS).stat().st_mtime
    with (project.folder / SOURCE).open("ab") as file:
        file.write(b"changed")
    os.utime(project.folder / SOURCE, (made_s + seconds, made_s + seconds))


def add_date(project: Project) -> None:
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    change(project, "search", ids=[*config["search"]["ids"], "S2_ROMANIA_20150827"])


CHANGES: dict[str, tuple[Callable[[Project], object], list[str]]] = {
    "an option": (lambda project: change(project, "train", seed=3), sorted([*OF_MODEL, "train"])),
    "a knob": (lambda project: change(project, "train", cache_mb=64, tell_every_s=5.0), []),
    "a class": (lambda project: change(project, classes=["open land", "forest"]), OF_LABELS),
    "newer labels": (lambda project: replace_labels(project, 60), OF_LABELS),
    "older labels": (lambda project: replace_labels(project, -60), OF_LABELS),
    "a deleted score": (
        lambda project: (project.results / "metrics.json").unlink(),
        ["all", "catalog", "crate", "evaluate", "report"],
    ),
    "a changed score": (
        lambda project: (project.results / "metrics.json").write_text("{}"),
        OF_REPORT,
    ),
    "a date": (add_date, sorted([*OF_LABELS, "search"])),
    "nothing, in files with other times": (lambda project: os.utime(project.folder / SOURCE), []),
}


@pytest.fixture(scope="module")
def unchanged(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished project with a sample of its own, which a test may change in a copy."""
    project = copied(finished, tmp_path_factory.mktemp("unchanged") / "project")
    (project.folder / "sample").unlink()
    shutil.copytree(ROOT / "sample", project.folder / "sample")
    assert planned(project, "plain") == []
    return project


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_reruns_what_depends_on_it_and_nothing_else(name: str, unchanged: Project, tmp_path: Path) -> None:
    copy = copied(unchanged, tmp_path / "copy")
    make, rerun = CHANGES[name]
    make(copy)
    assert planned(copy, "plain") == rerun


def records() -> Iterator[tuple[str, MetadataRecordORM]]:
    with Session(DbPersistence(path=SNAKEMAKE_FOLDER).engine) as session:
        for record in session.scalars(select(MetadataRecordORM)):
            session.expunge(record)
            yield record.target, record


def as_files(latest: dict[str, MetadataRecordORM], *, keep_database: bool = False) -> None:
    """Write records as Snakemake does without a database."""
    files = FilePersistence(path=SNAKEMAKE_FOLDER.absolute())
    for output, record in latest.items():
        content = record.model_dump(exclude={"namespace", "target"})
        files._io_write(files._metadata_path, content, output)
    if not keep_database:
        DATABASE.unlink()
