"""The `eopipe` command: one sub-command a stage, derived from its signature, and others around them."""

import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from eopipe import __version__
from eopipe.arguments import check_inputs, check_uses, expand_lists, expand_settings, parse
from eopipe.contract import IN_WORKFLOW, STAGES, Argument, Command, Stage, command, stage, summary
from eopipe.errors import (
    BadInputError,
    EopipeError,
    ModelCodeError,
    UsageError,
    did_you_mean,
    is_full,
    model_code_error,
    no_space,
)
from eopipe.run.help_texts import TOPICS, script, text_of
from eopipe.telemetry.progress import log_to_stderr
from eopipe.text_table import message_line, printable_output

log = logging.getLogger("eopipe")
# The command that passes all its arguments on, to Snakemake.
PASSED_ON = "run"
# OpenMP, as its libraries read it when they are loaded: how threads wait, and how many there are.
WAIT_POLICY, OPENMP_THREADS = "OMP_WAIT_POLICY", "OMP_NUM_THREADS"
# GDAL's cache of blocks: by default 5 % of the memory of the machine, whatever the job has.
GDAL_CACHE, GDAL_CACHE_MB = "GDAL_CACHEMAX", "64"
# Stages that run a model window by window.
OF_WINDOWS = ("calibrate", "predict")
# Each command beside the stages with its function, or functions by the word after its name, and its line in `eopipe
# --help`. A module is imported when its command runs.
COMMANDS = {
    "a project, from its first line to its report": {
        "init": ("eopipe.planning.init_command:init", "Write a commented config for an area of interest."),
        "check": ("eopipe.planning.check_config:check_command", "Find every mistake in a config that needs no images."),
        "plan": ("eopipe.planning.plan_command:plan", "Estimate downloads, files, chips and disk use of a run."),
        "run": ("eopipe.clusters.running:run", "Run the whole pipeline with Snakemake, or resume it."),
        "follow": ("eopipe.telemetry.follow:follow", "Show a training in TensorBoard, MLflow or Prometheus."),
    },
    "its results": {
        "compare": (
            "eopipe.inspection.compare_command:compare",
            "Compare finished runs: settings, paired scores, maps side by side.",
        ),
        "verify": ("eopipe.verify:verify", "Find removed, truncated or changed files; rebuild them."),
        "lineage": ("eopipe.provenance.lineage:lineage", "Trace a file or map pixel to chips, scenes and code."),
        "rerun": ("eopipe.provenance.rerun:rerun", "Run the jobs of a crate again and compare digests."),
        "sample": ("eopipe.areas.sample_command:sample", "Draw a probability sample of a map, as files to label."),
        "tiles": ("eopipe.inspection.tiles_command:TILES", "Describe, check or export tile stores."),
    },
    "clusters and other engines": {
        "profile": ("eopipe.clusters.profile_command:PROFILE", "Write or check a Snakemake profile for a cluster."),
        "usage": ("eopipe.clusters.usage:usage", "Show the memory, time and CPUs that jobs requested and used."),
        "cwl": ("eopipe.run.cwl:CWL", "Write a config as a job of CWL engines, with workflow and tools."),
        "condor": (
            "eopipe.clusters.htcondor:CONDOR",
            "Write HTCondor submit files for a training, for trials or a map.",
        ),
    },
    "single jobs, and the shell": {
        "command": ("eopipe.run.job_logs:command", "Print the command of a stage's jobs, to run one of them by hand."),
        "completion": ("eopipe.cli:completion", "Print the tab completion of eopipe for bash, zsh or fish."),
    },
}
STAGES_TITLE = "stages, which run calls in this order"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    log_to_stderr()
    with printable_output(sys.stdout, sys.stderr):
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(argv: list[str]) -> int:
    try:
        return dispatch(argv)
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - any other exception is a bug and has an exit code too
        return report_error(error)


def report_error(error: Exception) -> int:
    """Print an error without credentials; return its exit code."""
    from eopipe.provenance.redact import redact_for_terminal, redact_message

    error = model_code_error(error) or error
    if isinstance(error, RecursionError):
        error = BadInputError("an input is nested too deeply: JSON or YAML with hundreds of levels is not read")
    if isinstance(error, ModelCodeError):
        print("".join(f"  {redact_for_terminal(line)}\n" for line in error.frames), end="", file=sys.stderr)
    if isinstance(error, EopipeError):
        print(message_line("error", redact_for_terminal(str(error))), file=sys.stderr)
        return error.code
    if is_full(error):
        print(message_line("error", str(no_space(Path.cwd()))), file=sys.stderr)
        return 6
    if isinstance(error, MemoryError):
        text = f"not enough memory: {error}; choose a smaller area, or a machine with more"
        print(message_line("error", text), file=sys.stderr)
        return 6
    # These lines are to be sent to others.
    print(redact_message("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    print("error: this is a bug in eopipe; please report the lines above", file=sys.stderr)
    return 70


def dispatch(argv: list[str]) -> int:
    """Run the command that the first argument names, with the others."""
    commands = {name: target for group in COMMANDS.values() for name, (target, _) in group.items()}
    if argv and argv[0] in ("-h", "--help", "help"):
        if argv[1:] and argv[1] in TOPICS:
            print(text_of(argv[1]))
            return 0
        # `eopipe help train` is `eopipe train --help`.
        argv = [*argv[1:2], "--help"] if argv[1:] else []
    if not argv:
        print(overview())
        return 0
    if argv[0] == "--version":
        print(f"eopipe {__version__}")
        return 0
    if argv[0] in STAGES:
        return run_stage(stage(argv[0]), argv[1:])
    if argv[0] == PASSED_ON:
        return int(_import(commands[argv[0]])(argv[1:]))
    if argv[0] in commands:
        return run_command(argv[0], argv[1:])
    # A topic is asked for as one, whether a command or help was meant.
    words = {name: name for name in (*STAGES, *commands)} | {topic: f"eopipe help {topic}" for topic in TOPICS}
    hint = f"see {words[argv[0]]}" if argv[0] in TOPICS else did_you_mean(argv[0], words, "see eopipe --help")
    from eopipe.provenance.jobs import current_stage

    current, options = current_stage(argv[0])
    if current != argv[0]:
        more = "".join(f" --{option} {value}" for option, value in options.items())
        hint = f"eopipe {current}{more} has its arguments now"
    raise UsageError(f"there is no command {argv[0]}; {hint}")


def groups() -> dict[str, dict[str, str]]:
    """All commands with a line on each, in groups by purpose: what users type first, and stages last."""
    others = {title: {name: text for name, (_, text) in group.items()} for title, group in COMMANDS.items()}
    return others | {STAGES_TITLE: {name: summary(name) for name in STAGES}}


def overview() -> str:
    """What `eopipe --help` prints."""
    lines = ["usage: eopipe COMMAND ..."]
    for title, group in groups().items():
        lines += ["", f"{title}:", *(f"  {name:<11} {text}" for name, text in group.items())]
    lines += ["", "eopipe COMMAND --help shows the arguments of a command, eopipe help TOPIC how to begin with one of"]
    return "\n".join([*lines, f"{', '.join(TOPICS)}."])


def _import(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def definitions(name: str) -> dict[str, Command]:
    """A command beside the stages, and those below it, by the word after its name: an empty one for itself."""
    targets = {key: target for group in COMMANDS.values() for key, (target, _) in group.items()}
    target = _import(targets[name])
    functions = target if isinstance(target, dict) else {"": target}
    return {word: command(f"{name} {word}".rstrip(), function) for word, function in functions.items()}


def run_command(name: str, argv: list[str]) -> int:
    """Run a command beside the stages, or the one below it that its first argument names."""
    known = definitions(name)
    word = argv[0] if argv and argv[0] in known else ""
    below = {row.name: row.summary for key, row in known.items() if key}
    if word not in known:
        if not argv or argv[0] in ("-h", "--help"):
            width = max(map(len, below))
            lines = [f"  eopipe {command:<{width}}  {summary}" for command, summary in below.items()]
            print("\n".join([f"usage: eopipe {name} COMMAND ...", "", *lines]))
            return 0
        hint = did_you_mean(argv[0], [*known], f"there are {', '.join(known)}")
        raise UsageError(f"there is no command {name} {argv[0]}; {hint}")
    argv = argv[1:] if word else argv
    values = parse(known[word], expand_lists(known[word], argv), {} if word else below)
    return int(known[word].run(**values) or 0)


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument("shell that reads it", positional=True)],
) -> None:
    """Print the tab completion of eopipe, which the shell reads at its start."""
    others = {name: text for group in COMMANDS.values() for name, (_, text) in group.items()}
    print(script(shell, others), end="")


def run_stage(definition: Stage, argv: Sequence[str]) -> int:
    """Run a stage and write its run record, also when it fails."""
    from eopipe.clusters.executor_patches import refuse_cancelled
    from eopipe.launch.world import die_with_engine
    from eopipe.provenance.record import record_start, refuse_foreign_outputs, write_record
    from eopipe.provenance.redact import command_for_log

    command, argv = ["eopipe", definition.name, *argv], expand_settings(definition, expand_lists(definition, argv))
    values = parse(definition, argv)
    set_up_libraries(definition)
    die_with_engine()
    if IN_WORKFLOW in os.environ:
        # The standard error of a job is its log.
        print(command_for_log(command), file=sys.stderr, flush=True)
    refuse_cancelled()
    check_uses(definition, values)
    refuse_foreign_outputs(definition, values)
    check_inputs(definition, values)
    start, clock = record_start(definition, values, [definition.name, *argv]), time.monotonic()
    try:
        definition.run(**values)
    except Exception as error:
        expected = model_code_error(error) or error
        is_bug = not isinstance(expected, EopipeError)
        message = f"a bug in eopipe: {type(error).__name__}: {error}" if is_bug else str(expected)
        write_record(definition, values, [definition.name, *argv], start, message)
        raise
    record = write_record(definition, values, [definition.name, *argv], start)
    log.info("event=finished stage=%s %s", definition.name, _written(record["outputs"], values, clock))
    return 0


def set_up_libraries(definition: Stage) -> None:
    """Give OpenMP one thread, GDAL a cache of fixed size, models freed memory; variables that are set already stay.

    Stages with a knob `threads` have threads of their own. Elsewhere OpenMP would take every core of the machine.
    """
    os.environ.setdefault(GDAL_CACHE, GDAL_CACHE_MB)
    # Threads that spin while they wait slow down the processes that share the cores.
    os.environ.setdefault(WAIT_POLICY, "passive")
    # The launcher of a training sets the threads of each process; the order of its own sums (adapters) stays as it was.
    if definition.name != "train":
        os.environ.setdefault(OPENMP_THREADS, "1")
    if definition.name in OF_WINDOWS:
        from eopipe.processes import keep_freed_memory

        keep_freed_memory()


def _written(outputs: list[dict[str, Any]], values: dict[str, Any], clock: float) -> str:
    """The time since `clock`, and what a stage wrote, for its log."""
    # Stores in an output have a path.
    outputs = [row for row in outputs if "path" not in row]
    paths = " ".join(str(values[row["port"]]) for row in outputs)
    size, files = sum(row["bytes"] for row in outputs), sum(row["files"] for row in outputs)
    return f"seconds={time.monotonic() - clock:.1f} mb={size / 1e6:.3g} files={files} wrote={paths!r}"
