"""Logs of jobs: the command in their first line, their error, and what Snakemake says about jobs while it runs."""

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from eopipe.config import load
from eopipe.contract import STAGES, Argument, is_path, stage
from eopipe.errors import UsageError, did_you_mean
from eopipe.run.locate import find_config, project_folder
from eopipe.text_table import shell_word

Config = dict[str, Any]
# The name of Snakemake's logger; its handler of the plain output, which reports each finished job itself.
LOGGER, PLAIN_OUTPUT = "snakemake.logging", "DefaultStreamHandler"
# What the rules themselves refuse: the sentence is between places in their files.
REFUSED = re.compile(r'WorkflowError in file "[^"]*/common\.smk(?:@[^"]*)?", line \d+:\n(.*?)\n  File "', re.DOTALL)
# What their input functions refuse once the scenes are known.
REFUSED_INPUT = re.compile(
    r"InputFunctionException in rule [^\n]*\nError:\n  WorkflowError:\n    (.*?)\nWildcards:", re.DOTALL
)
JOBS_FAILED = "At least one job did not complete successfully"


def command(
    stage_name: Annotated[str, Argument(f"one of {', '.join(STAGES)}", positional=True, value="STAGE")],
    name: Annotated[
        str | None, Argument("name of the job's scene, period or map [all jobs of the stage]", positional=True)
    ] = None,
    configfile: Annotated[Path | None, Argument("config of the run [config.yaml]")] = None,
) -> None:
    """Print the command of each finished or failed job of a stage; pasted, it runs the job again."""
    if stage_name not in STAGES:
        hint = did_you_mean(stage_name, STAGES, f"the stages are {', '.join(STAGES)}")
        raise UsageError(f"there is no stage {stage_name}; {hint}")
    config = find_config(configfile)
    # The lines are relative to the project folder, where they are pasted.
    logs = project_folder(config) / load(config)["results"] / "logs"
    print("\n".join(commands(logs, stage_name, name)))


def commands(logs: Path, name: str, job: str | None = None) -> list[str]:
    """The commands of a stage's jobs, or of the job with this name. Raises UsageError where none has run."""
    files = [logs / f"{name}.log", *sorted((logs / name).glob("*.log"))]
    by_job = {path.stem: path for path in files if path.is_file()}
    lines = {key: line for key, path in by_job.items() if (line := first_line(path)).startswith("eopipe ")}
    if not lines:
        raise UsageError(
            f"no job of {name} has run here: {logs} has no log of it with a command; "
            "`eopipe run --dry-run --printshellcmds` shows the jobs that would run"
        )
    if job is None:
        return list(lines.values())
    if job not in lines:
        raise UsageError(f"{name} has no job {job}; its jobs are {', '.join(lines)}")
    return [lines[job]]


def first_line(log: Path) -> str:
    """The first line of a file, without its end."""
    with log.open(encoding="utf-8", errors="replace") as file:
        return file.readline().rstrip("\n")


def first_error(logs: Iterable[str]) -> str:
    """The first error that a job reported in its logs; empty where they have none."""
    texts = (log.read_text(encoding="utf-8", errors="replace") for log in map(Path, logs) if log.is_file())
    return next(filter(None, map(error_in, texts)), "")


def error_in(text: str) -> str:
    """The first error in the text of a log, with the indented lines below it; empty where it has none."""
    error = re.search(r"^error: (.*(?:\n  .*)*)$", text, re.MULTILINE)
    return error[1] if error else ""


class JobMessages(logging.Filter):
    """Adds to Snakemake's log, as its records pass: where to follow a training, finished jobs, errors of stages.

    A finished job has a line where nothing else reports it: outside a terminal, where a progress bar is the logger.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log = logging.getLogger(LOGGER)
        # Settings by the files that they name.
        self.keys: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self.is_running, self.finished = False, ""

    def read(self, config: Config) -> None:
        settings = ((name, port) for name in STAGES for port in stage(name).settings if is_path(port))
        self.keys = {str(config[name][port.name]): f"{name}.{port.name}" for name, port in settings}

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass: after a message of its own, or with another text."""
        values = record.__dict__
        match str(getattr(values.get("event"), "value", "")):
            case "job_started":
                # Not in a dry run.
                self.is_running = True
            case "job_info":
                self._name(values)
            case "job_finished":
                self.finished = self.names.get(values["job_id"], "")
                self.errors.pop(values["job_id"], None)
            case "progress":
                self._count(values)
            case "job_error":
                self._fail(values)
            case "error":
                record.msg, record.args = self._explain(record.getMessage()), ()
        return True

    def _name(self, job: dict[str, Any]) -> None:
        wildcards = dict(job.get("wildcards") or {}).values()
        self.names[job["jobid"]] = " ".join([str(job["rule_name"]), *map(str, wildcards)])
        if self.is_running and str(job["rule_name"]).startswith("train") and job.get("log"):
            self.log.info(f"training starts; follow it with: tail -f {shell_word(job['log'][0])}")

    def _count(self, values: dict[str, Any]) -> None:
        # A progress bar replaces sys.stderr.
        reported = os.isatty(2) or any(handler.name == PLAIN_OUTPUT for handler in self.log.handlers)
        if self.finished and not reported:
            self.log.info(f"{values['done']} of {values['total']} jobs: {self.finished} finished")

    def _fail(self, job: dict[str, Any]) -> None:
        logs = [str(log) for log in job.get("log") or []]
        name = self.names.get(job["jobid"], str(job["rule_name"]))
        error = first_error(logs) or f"see {', '.join(logs) or 'the lines above'}"
        self.errors[job["jobid"]] = f"{name} failed: {error}"
        self.log.error(self.errors[job["jobid"]])

    def _explain(self, message: str) -> str:
        """The errors of the jobs that failed, or the setting of a file that is missing, in place of a message."""
        if JOBS_FAILED in message and self.errors:
            return "\n".join(f"error: {error}" for error in self.errors.values())
        if refused := REFUSED.match(message) or REFUSED_INPUT.match(message):
            return f"error: {refused[1]}"
        if "MissingInputException" in message:
            files = message.partition("affected files:\n")[2].splitlines()
            missing = [f"{self.keys[file]} {file}" for line in files if (file := line.strip()) in self.keys]
            if missing:
                return f"error: there is no {' and no '.join(missing)}; correct the path in the config, or add the file"
        return message


def describe_jobs() -> JobMessages:
    """Let Snakemake's log of this process describe jobs and errors."""
    log = logging.getLogger(LOGGER)
    for earlier in [entry for entry in log.filters if isinstance(entry, JobMessages)]:
        log.removeFilter(earlier)
    messages = JobMessages()
    log.addFilter(messages)
    return messages
