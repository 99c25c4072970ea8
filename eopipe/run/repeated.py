"""The files of a run, and jobs that it repeats for folds, trials, rungs and members: their configs and files."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from eopipe.errors import UsageError, some_of
from eopipe.publish import MANIFEST
from eopipe.run.images import names_of_parts
from eopipe.trial_settings import config_of_training, kind_of_trainings, training_settings

Config = dict[str, Any]
# Files of a run that trains, beside its folders.
OF_SPLIT, CARDS = ["split.json", "split.png", "split.gpkg", "statistics.json"], ["model-card.md", "data-card.md"]
OF_TRAINING = [*OF_SPLIT, "metrics.json", "export.json", "model.onnx", "calibration.json", *CARDS]


def single_files(config: Config, of_sample: list[str]) -> list[str]:
    """The files of a run beside its folders of images and maps, with those of a labelled sample, if there is one."""
    results, label, trains = config["results"], config["label"], not config["model"]
    names = [*OF_TRAINING] if trains else ["status.json", *["metrics.json"] * bool(label["source"] or label["asset"])]
    names += ["report.html", "map.png", *["areas.json", "areas.html"] * bool(of_sample)]
    names += ["trials.json", "trials.html"] * (kind_of_trainings(config) == "trial")
    names += ["grid.json", "selection.json"] * (not config["chip_set"])
    paths = [*each_fold(config, "metrics.json"), *each_fold(config, f"model/{MANIFEST}"), *each_rung(config)]
    paths += each_training(config, [f"{results}/model/{MANIFEST}"])
    paths += [] if trains or not config["calibration"] else [config["calibration"]]
    return [*(f"{results}/{name}" for name in names), *paths, *of_sample]


def in_each(kind: str, results: str, shared: Any) -> Any:
    """The file of a fold or trial in the place of one of the results, named as the outputs of cwl/fold.cwl.

    A path gets the wildcard of that kind; a function of a job's wildcards gives the paths of the job's one.

    >>> in_each("fold", "results", "results/model/manifest.json"), in_each("trial", "results", "results/metrics.json")
    ('results/folds/model-fold-{fold}/manifest.json', 'results/trials/metrics-trial-{trial}.json')
    """
    if callable(shared):
        return lambda wildcards: _formatted(kind, results, shared(wildcards), wildcards[kind])
    name, *rest = str(shared).removeprefix(f"{results}/").split("/")
    stem, dot, suffix = name.partition(".")
    return "/".join([results, f"{kind}s", f"{stem}-{kind}-{{{kind}}}{dot}{suffix}", *rest])


def _formatted(kind: str, results: str, paths: str | list[str], name: str) -> str | list[str]:
    if isinstance(paths, str):
        return str(in_each(kind, results, paths)).format(**{kind: name})
    return [str(in_each(kind, results, path)).format(**{kind: name}) for path in paths]


def each_fold(config: Config, name: str) -> list[str]:
    """A file of the results in every fold of the cross-validation, if there is one."""
    results, numbers = config["results"], range(config["folds"])
    return [str(in_each("fold", results, f"{results}/{name}")).format(fold=number) for number in numbers]


def each_training(config: Config, paths: Iterable[str], only: str = "") -> list[str]:
    """Files of the results in every trial or member, or in one kind of them alone: all of the first one first."""
    kind = kind_of_trainings(config)
    if not kind or only not in ("", kind):
        return []
    of_training = [str(in_each(kind, config["results"], path)) for path in paths]
    return [path.format(**{kind: name}) for name in training_settings(config) for path in of_training]


def config_of_job(config: Config, wildcards: Any) -> Config:
    """The config of a job: with the split of its fold, or the training of its trial or member."""
    if fold := wildcards.get("fold", ""):
        return config | {"split": config["split"] | {"folds": config["folds"], "fold": int(fold)}}
    if not (name := wildcards.get("trial", "") or wildcards.get("member", "")):
        return config
    trainings = training_settings(config)
    if name not in trainings:
        raise UsageError(
            f"there is no {kind_of_trainings(config)} {name} in the config; it has {some_of([*trainings])}"
        )
    return config_of_training(config, trainings[name])


def rung_files(config: Config, wildcards: Any) -> dict[str, list[str]]:
    """What a rung compares: the models of all trials, and the rung before, if there is one."""
    rung, files = int(wildcards["rung"]), each_rung(config)
    return {"models": models_of_rung(config, rung), "previous": files[rung - 1 : rung]}


def models_of_rung(config: Config, rung: int) -> list[str]:
    """The models of all trials at a rung."""
    folder = f"{config['results']}/trials/rung-{rung}"
    return [f"{folder}/model-trial-{name}/{MANIFEST}" for name in training_settings(config)]


def each_rung(config: Config) -> list[str]:
    """The files of all rungs of the trials, in their order."""
    return [f"{config['results']}/trials/rung-{number}.json" for number, _ in enumerate(config["trials"]["rungs"])]


def of_parts_and_folds(config: Config, maps: Callable[[Any], list[str]], wildcards: Any) -> list[str]:
    """First files of the jobs of all parts of maps and of folds, whose records the crate has."""
    paths, parts = maps(wildcards), names_of_parts(config["map_parts"])
    shared = ("split.json", "calibration.json", *(path.removeprefix(f"{config['results']}/") for path in paths))
    in_folds = [path for name in shared for path in each_fold(config, name)]
    return [f"{Path(path).parent}/parts/{part}/{Path(path).name}" for path in paths for part in parts] + in_folds
