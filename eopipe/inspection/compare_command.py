"""`eopipe compare`: settings that differ between finished runs, and their scores on the same test places."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from eopipe.config import load
from eopipe.contract import STAGES, Argument, Knob, stage
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.evaluation.maps import EvaluationData
from eopipe.evaluation.paired import compare_runs
from eopipe.evaluation.trials import LEADERBOARD, TRIAL
from eopipe.own_files import refuse_foreign_file
from eopipe.provenance.jobs import RecordedJob, read_jobs, recorded_command
from eopipe.publish import RECORD, digest, publish
from eopipe.reporting.page import NOTE, read_panels, render_comparison, render_series, score_table
from eopipe.reporting.scores import TextTable
from eopipe.reporting.series import PeriodSeries
from eopipe.reporting.status import STATUS, MapStatus
from eopipe.reporting.wording import DASH, format_setting
from eopipe.run.locate import NAMES
from eopipe.text_files import read_json, write_json

METRICS = "metrics.json"
# What the page of a comparison contains, and how its scores begin.
PAGE_MARK, JSON_MARKS = "· eopipe comparison</title>", ('{\n "pieces": ', '{\n "changes": ')
# One record of a scene, a store or a map says what all jobs of its stage have in common.
RECORDS = (f"*{RECORD}", f"*/*{RECORD}", f"maps/*/*{RECORD}")
# What each job of a stage has for itself.
OF_ONE_JOB = {"cell", "part", "places"}
# Inputs of the evaluation whose content says on what the scores rest.
DATA = {"tiles": "tiles (sha256)", "labels": "labels (sha256)", "chips": "split (sha256)"}
# Folders from the results up to that in which the run started.
MAX_DEPTH = 4


@dataclass(frozen=True)
class FinishedResults:
    """The results of a run with scores, and what its records say."""

    folder: Path
    jobs: tuple[RecordedJob, ...]

    @classmethod
    def at(cls, path: Path) -> "FinishedResults":
        """Those in a folder of results, or of a project. Raises BadInputError where there are no scores."""
        folder = results_in(path)
        if not (folder / f"{METRICS}{RECORD}").is_file():
            raise BadInputError(f"{path} has no scores: give the results of a finished run, or its project folder")
        records = [sorted(folder.glob(pattern)) for pattern in RECORDS]
        first = {record.parent: record for paths in records[1:] for record in reversed(paths)}
        return cls(folder, read_jobs([*records[0], *sorted(folder.glob(f"trials/{TRIAL}*{RECORD}")), *first.values()]))

    @cached_property
    def data(self) -> EvaluationData:
        """The maps of the run with labels and split, as its evaluation read them."""
        record = next(job.record for job in self.jobs if job.stage == "evaluate")
        _, values = recorded_command(record.arguments)
        maps, tiles, labels = (tuple(map(self._existing, values[name])) for name in ("classes", "tiles", "labels"))
        evaluated = {data.sha256 for data in record.inputs if data.port == "classes"}
        if others := [path for path in maps if digest(path) not in evaluated]:
            raise IntegrityError(f"{others[0]} is not the map that was evaluated, by the record; run evaluate again")
        chips, model = (values[name] and self._existing(values[name]) for name in ("chips", "tested_model"))
        return EvaluationData.read(maps, tiles, labels, chips, model)

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the stages that change results, versions of the code, and digests of the data, as text."""
        texts: dict[str, str] = {}
        for job in filter(self._made_results, self.jobs):
            knobs = {port.name for port in stage(job.stage).settings if isinstance(port.mark, Knob)}
            for name, value in job.settings.items():
                if name not in knobs | OF_ONE_JOB:
                    texts.setdefault(f"{job.stage}.{name}", format_setting(value))
            for port, name in DATA.items() if job.stage == "evaluate" else ():
                # One short digest of all files of a port.
                if digests := sorted(data.sha256 for data in job.record.inputs if data.port == port):
                    texts[name] = sha256(" ".join(digests).encode()).hexdigest()[:12]
            if job.stage == "train":
                texts |= {"eopipe": job.record.version, "commit of the project": job.record.project or DASH}
        return texts

    def _made_results(self, job: RecordedJob) -> bool:
        """Whether a job is a part of the way to the results: not a failed one, and of trials only the chosen one."""
        if job.failed or job.stage not in STAGES:
            return False
        trials = self.folder / "model" / LEADERBOARD
        names = [output.name for output in job.record.outputs if output.port == "model"]
        return job.stage != "train" or not trials.is_file() or names == [f"{TRIAL}{read_json(trials)['chosen']}"]

    def _existing(self, path: Path) -> Path:
        """The file or folder of a recorded path in the results, which may have been copied; else its own place."""
        above = self.folder.absolute().parents[:MAX_DEPTH]
        parts = path.relative_to(path.anchor).parts
        ends = [self.folder / Path(*parts[-length:]) for length in range(len(parts), 0, -1)]
        existing = next((place for place in (*ends, *(folder / path for folder in above)) if place.exists()), None)
        if existing is None:
            raise BadInputError(f"{self.folder} was evaluated with {path}, which is not there any more")
        return existing


def compare(
    runs: Annotated[
        tuple[Path, ...], Argument("results of a run, or its project folder", positional=True, value="RUN")
    ],
    places: Annotated[
        Literal["test", "val"],
        Argument("val: validation places, to choose a model, which is then scored on the test places"),
    ] = "test",
    page: Annotated[Path | None, Argument("HTML page with the tables, and the maps side by side")] = None,
    json: Annotated[Path | None, Argument("file of all scores, intervals, differences and differing settings")] = None,
) -> None:
    """Compare finished runs: the settings that differ, and their scores on the places that all of them have.

    Maps of different days by a finished model are a series: areas by date, changes between dates, and drift of inputs.
    """
    if len(runs) < 2:
        raise UsageError(f"compare needs two runs or more, and only {runs[0]} is given")
    refuse_foreign_file(page, PAGE_MARK)
    refuse_foreign_file(json, *JSON_MARKS)
    if places == "test" and (folders := _periods(runs)):
        return _compare_periods(PeriodSeries.of(folders, names_of(runs)), page, json)
    return _compare_scores(runs, places, page, json)


def _compare_periods(series: PeriodSeries, page: Path | None, json: Path | None) -> None:
    """Print the tables of a series, and write its page and document."""
    print("\n".join(series.sentences))
    for table in series.tables.values():
        print("\n".join(["", f"{table.caption}:", *table.lines(0, 1)]))
    print("\n".join(["", *series.findings] if series.findings else []))
    with ExitStack() as drafts:
        if page:
            drafts.enter_context(publish(page)).write_text(render_series(series), encoding="utf-8")
        if json:
            write_json(drafts.enter_context(publish(json)), series.json())


def _compare_scores(runs: Sequence[Path], places: Literal["test", "val"], page: Path | None, json: Path | None) -> None:
    """Print the scores of runs on their common places, and write their page and document."""
    names, results = names_of(runs), [FinishedResults.at(path) for path in runs]
    data = [run.data for run in results]
    comparison, settings = compare_runs(data, names, places), _differing([run.settings for run in results])
    scores, count = score_table(comparison, names, data[0], places), len(names)
    rows = [(name, *texts) for name, texts in settings.items()]
    differing = TextTable("Settings, code and data", ("Setting", *names), rows, "plain")
    print(f"{scores.caption}:")
    print("\n".join([*scores.lines(0, *range(count + 1, 2 * count)), NOTE, ""]))
    print("\n".join(differing.lines(*range(count + 1)) if rows else ["No setting differs."]))
    with ExitStack() as drafts:
        if page:
            text = render_comparison(names, scores, differing, read_panels(data, names, places))
            drafts.enter_context(publish(page)).write_text(text, encoding="utf-8")
        if json:
            # Differences are to the first run.
            of_runs = [{"name": name} | run.json_document() for name, run in zip(names, comparison.runs, strict=True)]
            sizes = {"samples": comparison.count, "pieces": comparison.pieces}
            document = sizes | {"runs": of_runs, "settings": settings, "places": places}
            write_json(drafts.enter_context(publish(json)), document)


def results_in(path: Path) -> Path:
    """The folder of results: itself, or the one that the config of a project names."""
    configs = [path / name for name in NAMES if (path / name).is_file()]
    is_results = any((path / name).is_file() for name in (METRICS, STATUS))
    return path if is_results or not configs else path / load(configs[0])["results"]


def _periods(runs: Sequence[Path]) -> list[Path]:
    """The folders of results, if all are maps of a finished model, of scenes of days that differ; else none."""
    folders = [results_in(path) for path in runs]
    if not all((folder / STATUS).is_file() for folder in folders):
        return []
    days = [tuple(MapStatus.read(folder / STATUS).days) for folder in folders]
    return folders if len({*days}) == len(days) else []


def names_of(paths: Sequence[Path]) -> list[str]:
    """Short names of runs: the ends of the paths of their projects that differ. Raises UsageError for a run twice."""
    folders = [path.resolve().parent if path.name == "results" else path.resolve() for path in paths]
    if again := [str(path) for path, folder in zip(paths, folders, strict=True) if folders.count(folder) > 1]:
        raise UsageError(f"{' and '.join(again)} are one run; give runs that differ")
    parts = [folder.parts for folder in folders]
    ends = (["/".join(of_run[-count:]) for of_run in parts] for count in range(1, max(map(len, parts)) + 1))
    return next(names for names in ends if len({*names}) == len(names))


def _differing(settings: Sequence[dict[str, str]]) -> dict[str, list[str]]:
    names = dict.fromkeys(name for of_run in settings for name in of_run)
    texts = {name: [of_run.get(name, DASH) for of_run in settings] for name in names}
    return {name: of_runs for name, of_runs in texts.items() if len(set(of_runs)) > 1}
