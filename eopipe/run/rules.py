"""What the Snakemake rules call: params and resources of a stage, folders and sizes of inputs, run records."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from eopipe.chips.import_set import state_of_files
from eopipe.config import check
from eopipe.config_conflicts import refusal_of_import
from eopipe.contract import IN_WORKFLOW, STAGES, Input, Knob, Mark, Option, stage, to_args
from eopipe.errors import UsageError
from eopipe.launch.world import announce_engine
from eopipe.models.model_files import module_of
from eopipe.publish import MANIFEST, visible_files
from eopipe.run.images import image_and_cell
from eopipe.run.locate import chip_stores, imports_chips
from eopipe.run.repeated import config_of_job
from eopipe.text_files import read_config
from eopipe.trial_settings import PLACES, counts_of_rungs

Config = dict[str, Any]
# Functions of a job's wildcards and input files, as Snakemake calls them.
AmountOfInput = Callable[[Any, Any], int]
Amount = int | AmountOfInput
PINNED = "constraints.txt"
SMALL_SCENE_MB = 50
# Files of the results that stages make and share, by the names of their ports.
SHARED_FILES = {
    "grid": "grid.json",
    "chips": "split.json",
    "statistics": "statistics.json",
    "model": "model/manifest.json",
    "calibration": "calibration.json",
    "metrics": "metrics.json",
    "catalog": "catalog/manifest.json",
    "products": "products/manifest.json",
    "areas": "areas.json",
}


def checked(values: Config, *sources: str) -> Config:
    """The config with defaults, from its file.

    Raises UsageError for its mistakes, for several files, whose settings would be mixed and of which the crate has one,
    for a file at the path of its folders, and for names of files that Snakemake cannot have.
    """
    paths = list({Path(source).resolve(): os.path.relpath(source) for source in sources}.values())
    if len(paths) > 1:
        raise UsageError(
            f"{' and '.join(paths)} are several configs, and a run has one: merge them; in a Snakefile of your own "
            "write `if not config_files(workflow):` above its configfile, as `eopipe init` does"
        )
    if paths and Path(paths[0]).is_file():
        # Snakemake keeps the last of two equal keys.
        read_config(Path(paths[0]))
    config = check(values, *paths)
    files = [f"{key}: {config[key]}" for key in ("results", "state") if Path(config[key]).is_file()]
    if files:
        raise UsageError(f"{' and '.join(files)} must be a folder, but is a file: move it, or name another folder")
    if not imports_chips(config):
        chip_stores(config)
    elif mistakes := refusal_of_import(partial(state_of_files, config["import"])):
        raise UsageError(mistakes[0])
    if config["model"]:
        # Nothing of it is needed elsewhere, and each job reads the config.
        from eopipe.run.finished_model import finished_model_mistakes

        if sentences := finished_model_mistakes(config):
            raise UsageError("; ".join(sentences))
    paths = [
        *(path for name in STAGES for path in named_paths(config, name)),
        *filter(None, (config["chip_set"], config["model"])),
    ]
    if wildcards := [path for path in paths if re.search(r"\{\s*\w", path)]:
        raise UsageError(f"{' and '.join(wildcards)}: Snakemake takes braces in file names for wildcards; rename it")
    return config


def _argv(config: Config, name: str, kind: type[Mark], without: Iterable[str] = ()) -> list[str]:
    """Arguments for the ports of one kind that the config sets."""
    ports = [(port, config.get(port.section or name, {})) for port in stage(name).of(kind) if port.name not in without]
    arguments = [(port, values[port.setting]) for port, values in ports if port.setting in values]
    # Built-in models need no permission.
    return [
        word
        for port, value in arguments
        if port.name != "allow_code" or module_of(value)
        for word in to_args(port, value)
    ]


def _without_effect(config: Config, name: str) -> dict[str, Any]:
    """Options without effect beside these settings: a change of them must rerun nothing."""
    from eopipe.training_job import options_without_effect

    if name != "train":
        return {}
    train = config[name]
    names = options_without_effect(train["architecture"], train["task"], train["deterministic"])
    return {option: train[option] for option in names}


def shared_files(config: Config) -> dict[str, str | list[str]]:
    """The shared files of the results by name; without a labelled sample there are no areas."""
    missing = () if config["evaluate"]["sample"] else ("areas",)
    return {name: [] if name in missing else f"{config['results']}/{path}" for name, path in SHARED_FILES.items()}


def prefix(setup: str) -> str:
    """The set-up of a site before each shell line; `module` and similar commands fail in a strict shell."""
    # Snakemake formats the line.
    escaped = setup.replace("{", "{{").replace("}", "}}")
    return f"{escaped}\nset -euo pipefail; "


def name_container(image: str) -> None:
    """Give commands in a container the name of its image for their run records; outside of one it has no effect."""
    for program in ("APPTAINER", "SINGULARITY"):
        os.environ[f"{program}ENV_EOPIPE_CONTAINER"] = image


def options(config: Config, name: str) -> str:
    """What changes a result: it goes into a rule's `params`, so a change reruns the job."""
    return shlex.join(_argv(config, name, Input) + _argv(config, name, Option, _without_effect(config, name)))


def revision(name: str) -> int:
    """The revision of a stage's results: it goes into a rule's `params` only, so that other results rerun the job."""
    return stage(name).revision


def knobs(config: Config, name: str, *argv: str, **values: Any) -> str:
    """What changes only speed or place, behind `argv`; `values` replace values of the config.

    It goes into a rule's `resources`, so a change reruns nothing.
    """
    replaced = [w for port in stage(name).of(Knob) if port.name in values for w in to_args(port, values[port.name])]
    without_effect = _argv({name: _without_effect(config, name)}, name, Option)
    return shlex.join([*argv, *_argv(config, name, Knob, values), *replaced, *without_effect])


def params_for(
    config: Config,
    name: str,
    folders: Iterable[str] = (),
    optional: Iterable[str] = (),
    outputs: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The `params` of a rule: options and revision of its stage, and the folders of inputs that are manifests.

    Folders of `optional` inputs are arguments, none where the job has no such input, and so are these outputs.
    """
    functions = {name_of_input: _folders_of(name_of_input) for name_of_input in folders}
    functions |= {name_of_input: _arguments_of(name_of_input) for name_of_input in optional}
    if outputs is not None:
        names = [*outputs]
        functions["outputs"] = lambda wildcards, output: [word for n in names for word in (_flag(n), output[n])]
    settings = {"options": partial(options_of_job, config, name), "revision": revision(name)}
    return functions | settings | _libraries(config, name)


def literal(text: str) -> Callable[[Any], str]:
    """A text of the config as a function of a job: in the braces of a plain text Snakemake looks for wildcards."""
    return lambda wildcards: text


def _libraries(config: Config, name: str) -> dict[str, str]:
    """Versions of the libraries that a custom model uses: another version gives other weights."""
    from eopipe.models.model_files import libraries

    train = config["train"]
    versions = libraries(train["architecture"], train["model_files"]) if name == "train" else {}
    return {"libraries": ", ".join(f"{library} {number}" for library, number in versions.items())} if versions else {}


def _folders_of(name: str) -> Callable[[Any, Any], list[str]]:
    # By its name `input` Snakemake knows that the value follows from the input.
    return lambda wildcards, input: folders(getattr(input, name))


def _arguments_of(name: str) -> Callable[[Any, Any], list[str]]:
    return lambda wildcards, input: [_flag(name), *folders(paths)] if (paths := input.get(name)) else []


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def resources_for(
    config: Config, name: str, *argv: str, mem_mb: Amount, runtime: Amount | None = None, **fixed: Amount
) -> dict[str, Any]:
    """The `resources` of a rule: memory in MB and runtime in minutes grow with each attempt, `fixed` ones do not.

    The runtime grows up to `max_minutes` of the config. The knobs of its stage come behind `argv`, in which `{scene}`
    and others are wildcards. A stage with a knob `threads` gets the job's threads.
    """
    has_threads = "threads" in {port.name for port in stage(name).of(Knob)}

    def knobs_of_job(wildcards: Any, threads: int) -> str:
        first = [argument.format_map(dict(wildcards.items())) for argument in argv]
        return knobs(config, name, *first, **({"threads": threads} if has_threads else {}))

    times = {} if runtime is None else {"runtime": _per_attempt(runtime, config["max_minutes"])}
    return {"knobs": knobs_of_job, "mem_mb": _per_attempt(mem_mb)} | times | fixed


def _per_attempt(amount: Amount, maximum: int | None = None) -> Callable[[Any, Any, int], int]:
    def requested(wildcards: Any, input: Any, attempt: int) -> int:
        grown = (amount(wildcards, input) if callable(amount) else amount) * attempt
        return min(grown, maximum or grown)

    return requested


def minutes_of_map(config: Config) -> AmountOfInput:
    """Minutes of a job that predicts its tiles, each window as often as it has symmetries."""
    return lambda wildcards, input: 20 + volume(input.tiles) * config["predict"]["symmetries"] // 10


def disk_of_map(wildcards: Any, input: Any) -> int:  # noqa: ARG001 - the first is always given
    """MB of scratch files of a job that maps its tiles."""
    return 100 + volume(input.tiles)


def threads_of_scene(config: Config, has_job_arrays: Callable[[], bool]) -> AmountOfInput:
    """Threads of `preprocess`: one for a small scene, which does not keep more busy; four before it is fetched.

    All tasks of a job array have the CPUs of its first, so there every scene has four.
    """

    def is_small(scene: str) -> bool:
        return Path(scene).is_file() and volume([scene]) < SMALL_SCENE_MB and not has_job_arrays()

    return lambda wildcards, input: config["preprocess"]["threads"] or (1 if is_small(input.scene) else 4)


def training_mb(config: Config) -> AmountOfInput:
    """Memory of a training; what each process keeps decoded is bounded, however many scenes there are."""
    train = config["train"]
    return lambda wildcards, input: (1500 + min(train["cache_mb"], 4 * volume(input.tiles))) * train["processes"]


def training_minutes(config: Config) -> AmountOfInput:
    """Time of one attempt of a training, which is short where its length is not set."""

    def minutes(wildcards: Any, input: Any) -> int:
        train = config_of_job(config, wildcards)["train"]
        return min(720, 60 + volume(input.tiles) * (train["epochs"] or 0) // 100 + (train["steps"] or 0) // 10)

    return minutes


def catalog(config: Config) -> Callable[[Any], str]:
    """The option of fetch with the catalog that relative paths of the items start from."""
    folder = config["search"]["catalog"]
    return literal(shlex.join(["--catalog", str(folder)]) if folder else "")


def named_files(config: Config, name: str) -> dict[str, str | list[str]]:
    """The user's own input files of a stage; of a published folder it is the manifest, of a catalog catalog.json.

    A folder of code is each of its files: a change in one of them reruns the stage.
    """
    ports = [port for port in stage(name).of(Input) if isinstance(port.mark, Input) and port.mark.user]
    paths = {port.name: config[port.section or name][port.setting] for port in ports}
    return {k: _files_of(v) if isinstance(v, tuple) else _file_for(Path(v)) for k, v in paths.items() if v}


def list_of_windows(config: Config) -> dict[str, str]:
    """The list of windows of an import, if it has one."""
    return {"windows": str(config["import"]["windows"])} if config["import"]["windows"] else {}


def named_paths(config: Config, name: str) -> list[str]:
    """The paths of `named_files`, in one list."""
    return [p for value in named_files(config, name).values() for p in ([value] if isinstance(value, str) else value)]


def _files_of(paths: Iterable[Path]) -> list[str]:
    return [str(file) for path in paths for file in (visible_files(path) if path.is_dir() else [path])]


def _file_for(path: Path) -> str:
    return str(next((path / name for name in (MANIFEST, "catalog.json") if (path / name).is_file()), path))


def options_of_job(config: Config, name: str, wildcards: Any) -> str:
    """The options of a job: its stage's, and of a map its cell where a run has several, its part and places."""
    rung = wildcards.get("rung", "")
    # A score ranks the maps of finished trials alone.
    has_score = name != "choose" or not (rung or config["members"])
    words = [options(config_of_job(config, wildcards), name)] * has_score
    if name == "predict":
        _, cell = image_and_cell(config, wildcards.map)
        places = next((split for kind, split in PLACES.items() if wildcards.get(kind, "")), "")
        of_job = {"--cell": cell, "--part": wildcards.get("part", ""), "--places": places}
        words += [f"{flag} {shlex.quote(value)}" for flag, value in of_job.items() if value]
    if rung:
        share, count = config["trials"]["rungs"][int(rung)], counts_of_rungs(config)[int(rung)]
        words += [{"train": f"--until {share}", "choose": f"--count {count}"}[name]]
    return " ".join(filter(None, words))


def training_files(config: Config, wildcards: Any) -> dict[str, str | list[str]]:
    """The user's own input files of a training, and what a trial continues behind the rung before, if there is one."""
    files = named_files(config_of_job(config, wildcards), "train")
    rung = int(wildcards.get("rung", len(config["trials"]["rungs"]))) if wildcards.get("trial", "") else 0
    if not rung:
        return files
    folder = f"{config['results']}/trials/rung-{rung - 1}"
    continued = f"{folder}/model-trial-{wildcards['trial']}/{MANIFEST}"
    return files | {"continued": continued, "promoted": f"{folder}.json"}


def folders(manifests: Iterable[str] | str) -> list[str]:
    """The folders of manifests; other names stay as they are."""
    names = [manifests] if isinstance(manifests, str) else manifests
    return [str(Path(name).parent) if Path(name).name == MANIFEST else name for name in names]


def volume(files: Iterable[str] | str) -> int:
    """MB of files; a manifest counts as its folder; 0 for the single name that Snakemake gives before the search."""
    return 0 if isinstance(files, str) else sum(_bytes(Path(name)) for name in files) // 10**6


def _bytes(path: Path) -> int:
    if path.name != MANIFEST:
        return path.stat().st_size
    # Snakemake expects a FileNotFoundError for an input that is still to be made.
    return sum(int(row["size"]) for row in json.loads(path.read_text())["files"])


def records(outputs: Iterable[str]) -> list[str]:
    """The run records of the jobs that wrote these files, or the folders of these manifests, and of their chip set."""
    paths = [path.parent if path.name == MANIFEST else path for path in map(Path, outputs)]
    # Stores of a chip set are two folders further down.
    paths += [path.parents[1] for path in paths if len(path.parents) > 1 and (path.parents[1] / MANIFEST).is_file()]
    files = [path.with_name(f"{path.name}.run.json") for path in paths]
    return sorted({str(path) for path in files if path.is_file()})


def share_with_jobs(workflow: Path) -> Path:
    """Pass the folder of the workflow to jobs, in their environment.

    Snakemake records everything else that it passes to jobs, and a path outside of a project names its owner's home.
    """
    os.environ[IN_WORKFLOW] = str(workflow)
    announce_engine()
    return workflow


def describe_run(configs: Iterable[str], workflow: Path) -> str:
    """Options that describe the run to the crate: the engine's version, the config, the pinned packages."""
    from importlib.metadata import version

    arguments = ["--engine-version", version("snakemake")]
    # Snakemake makes paths absolute, and records the command.
    arguments += [argument for path in [*configs][:1] for argument in ("--config", os.path.relpath(path))]
    lock = next(iter(pinned(workflow)), None)
    folder = "" if lock in (None, Path(PINNED)) else '"$EOPIPE_WORKFLOW"/'
    return shlex.join(arguments) + (f" --lock {folder}{PINNED}" if lock else "")


def workflow_params(configs: Iterable[str], workflow: Path) -> dict[str, Any]:
    """The `params` of the crate's rule that say what ran the jobs."""
    return {"more": literal(describe_run(configs, workflow)), "workflow": digest_of(workflow)}


def pinned(workflow: Path) -> list[Path]:
    """The files of pinned packages: of the project, and of the checkout that it runs from."""
    return [path for path in (Path(PINNED), workflow / PINNED) if path.is_file()]


def digest_of(workflow: Path) -> str:
    """What the crate holds of the workflow, as one digest: it goes into `params`, so that a change reruns it."""
    paths = [workflow / "Snakefile", *sorted((workflow / "workflow").rglob("*"))]
    return sha256(b"".join(path.read_bytes() for path in paths if path.is_file())).hexdigest()
