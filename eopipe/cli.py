"""The `eopipe` command: one sub-command a stage, derived from its signature, and a few for people."""

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from eopipe import __version__
from eopipe.contract import STAGES, Input, Option, Output, Port, Stage, is_path, stage, summary
from eopipe.errors import BadInputError, EopipeError, UsageError, is_full, no_space


class Parser(argparse.ArgumentParser):
    """An argument parser that reports through UsageError."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    from eopipe.provenance.redact import redact_for_terminal, redact_message

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("eopipe").setLevel(logging.INFO)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return dispatch(words)
    except EopipeError as error:
        print(f"error: {redact_for_terminal(str(error))}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        # Who read the output has seen enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told as a bug and has a code
        if is_full(error):
            print(f"error: {no_space(Path.cwd())}", file=sys.stderr)
            return 6
        # These lines are made to be sent to others.
        print(redact_message(traceback.format_exc()), end="", file=sys.stderr)
        print("error: this is a bug in eopipe; please report the lines above", file=sys.stderr)
        return 70


def dispatch(words: list[str]) -> int:
    """Find the command that the first word names and run it with the rest."""
    commands = _commands()
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"eopipe {__version__}")
        return 0
    if words == ["report"]:
        # Without its inputs the stage could only fail; a person means what the run in this folder used.
        words = ["usage"]
    if words[0] in STAGES:
        return run_stage(stage(words[0]), words[1:])
    if words[0] in commands:
        return commands[words[0]](words[1:])
    near = get_close_matches(words[0], [*STAGES, *commands], 1)
    hint = f"did you mean {near[0]}?" if near else "see eopipe --help"
    raise UsageError(f"there is no command {words[0]}; {hint}")


def _commands() -> dict[str, Callable[[list[str]], int]]:
    return {
        "init": _init,
        "run": _run,
        "check": _check,
        "plan": _plan,
        "profile": _profile,
        "usage": _usage,
        "condor": _condor,
        "rate": _rate,
        "verify": _verify,
        "rerun": _rerun,
        "lineage": _lineage,
        "tiles": _tiles,
    }


def overview() -> str:
    """What `eopipe --help` prints."""
    lines = ["usage: eopipe COMMAND ...", "", "stages, in order:"]
    lines += [f"  {name:<11} {summary(name)}" for name in STAGES]
    lines += ["", "commands:"]
    lines += [f"  {name:<11} {function.__doc__}" for name, function in _commands().items()]
    return "\n".join([*lines, "", "eopipe COMMAND --help says more."])


def parser(definition: Stage) -> Parser:
    """The command line of a stage."""
    made = Parser(
        prog=f"eopipe {definition.name}",
        description=definition.function.__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = {
        kind: made.add_argument_group(title)
        for kind, title in ((Input, "inputs"), (Output, "outputs"), (Option, "settings"))
    }
    for port in definition.ports:
        kind = next(k for k in groups if isinstance(port.mark, k))
        groups[kind].add_argument(port.flag, dest=port.name, **_argument(port))
    return made


def _argument(port: Port) -> dict[str, Any]:
    text = port.mark.doc.replace("%", "%%")
    if port.base is bool:
        return {"action": "store_true", "help": text}
    if not port.required and port.default not in (None, ()):
        shown = " ".join(map(str, port.default)) if port.is_list else port.default
        text += f" [{shown}]"
    return {
        "help": text,
        "required": port.required,
        "default": argparse.SUPPRESS if port.required else port.default,
        "nargs": "+" if port.is_list else None,
        "metavar": "|".join(port.choices) or ("PATH" if is_path(port) else port.base.__name__.upper()),
    }


def parse(definition: Stage, words: Sequence[str]) -> dict[str, Any]:
    """Turn a command line into typed values; every wrong one is named in one error."""
    from eopipe.config import typed

    return typed(definition, vars(parser(definition).parse_args(words)))


def run_stage(definition: Stage, words: Sequence[str]) -> int:
    """Run a stage and write its run record, also when it fails."""
    from eopipe.clusters.cancelled import refuse_cancelled
    from eopipe.provenance.record import now, refuse_others, write_record

    values = parse(definition, words)
    refuse_cancelled()
    refuse_others(definition, values)
    check_inputs(definition, values)
    start = now()
    try:
        definition.function(**values)
    except Exception as error:
        told = str(error) if isinstance(error, EopipeError) else f"a bug in eopipe: {type(error).__name__}: {error}"
        write_record(definition, values, [definition.name, *words], start, told)
        raise
    write_record(definition, values, [definition.name, *words], start)
    return 0


def check_inputs(definition: Stage, values: dict[str, Any]) -> None:
    """Every input exists and is what its manifest says; all that are wrong are listed at once."""
    from eopipe.publish import MANIFEST, verify

    missing, content = [], os.environ.get("EOPIPE_VERIFY", "content") != "size"
    for port in definition.of(Input):
        value = values[port.name]
        for path in value if port.is_list else (value,):
            if path is not None and not path.exists():
                missing.append(f"{port.flag} {path}")
            elif path is not None and (path / MANIFEST).is_file():
                verify(path, content=content)
    if missing:
        raise BadInputError(f"{definition.name} cannot find {', '.join(missing)}")


def _init(words: list[str]) -> int:
    """Write a commented config for an area of your own."""
    from eopipe.run.project import init

    return init(words)


def _run(words: list[str]) -> int:
    """Run the whole pipeline through Snakemake, also after a crash."""
    from eopipe.clusters.running import run

    return run(words)


def _check(words: list[str]) -> int:
    """Check a config file before anything runs."""
    from eopipe.config import load

    made = Parser(prog="eopipe check", description=_check.__doc__)
    made.add_argument("config", type=Path, nargs="?", default=Path("config/config.yaml"))
    path = made.parse_args(words).config
    load(path)
    print(f"{path} is fine")
    return 0


def _plan(words: list[str]) -> int:
    """Show what a run will fetch, make and need, before anything is downloaded."""
    from eopipe.planning.plan_command import plan

    return plan(words)


def _profile(words: list[str]) -> int:
    """Write a Snakemake profile for your cluster, check one, or fit it to what jobs used."""
    from eopipe.clusters.profile_command import profile

    return profile(words)


def _usage(words: list[str]) -> int:
    """Show what the jobs of a run asked for and used; `eopipe report` alone does the same."""
    from eopipe.clusters.usage_command import usage

    return usage(words)


def _condor(words: list[str]) -> int:
    """Write a training for HTCondor: the line of train with condor in its place."""
    from eopipe.clusters.htcondor import options, write

    epilog = "all of eopipe train --help"
    made = Parser(prog="eopipe condor", description=_condor.__doc__, epilog=epilog, allow_abbrev=False)
    given, rest = options(made).parse_known_args(words)
    return write(given, parse(stage("train"), rest))


def _rate(words: list[str]) -> int:
    """Suggest a learning rate: the line of train with rate in its place; nothing is written."""
    made = Parser(
        prog="eopipe rate", description=_rate.__doc__, epilog="all of eopipe train --help", allow_abbrev=False
    )
    made.add_argument("--steps", type=int, default=120, help="steps of the trial, 20 or more [120]")
    given, rest = made.parse_known_args(words)
    if given.steps < 20:
        raise UsageError(f"--steps is {given.steps}; a curve needs 20 or more")
    train = stage("train")
    values = parse(train, rest if "--model" in rest else [*rest, "--model", "model"])
    check_inputs(train, values)
    from eopipe.training.lr_finder import advice, try_rates

    print("\n".join(advice(try_rates(values, given.steps), values["learning_rate"])))
    return 0


def _verify(words: list[str]) -> int:
    """Find removed, truncated or changed files, and make them again on request."""
    from eopipe.verify import verify

    return verify(words)


def _rerun(words: list[str]) -> int:
    """Make a crate's run again and compare every digest."""
    from eopipe.provenance.rerun import rerun

    return rerun(words)


def _lineage(words: list[str]) -> int:
    """Follow a file, or a pixel of a map, back to chips, scenes, code and settings."""
    from eopipe.provenance.lineage import lineage

    return lineage(words)


def _tiles(words: list[str]) -> int:
    """Tell what is in stores, check them, or draw them as a contact sheet."""
    from eopipe.inspection.tiles_command import tiles

    return tiles(words)
