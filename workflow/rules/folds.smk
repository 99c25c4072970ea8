# A cross-validation beside the model: each fold is split, trained, mapped and scored as the model is.
wildcard_constraints:
    fold="[0-9]+",


def in_fold(path):
    """The path of a fold's file, named as the outputs of cwl/fold.cwl: model -> folds/model-fold-{fold}."""
    name, *rest = path.removeprefix(f"{RESULTS}/").split("/")
    stem, dot, suffix = name.partition(".")
    return "/".join([RESULTS, "folds", f"{stem}-fold-{{fold}}{dot}{suffix}", *rest])


def of_fold(name):
    """The input of a fold that the fold's own jobs make."""
    shared = FILES[name]
    if not callable(shared):
        return in_fold(shared)
    return lambda wildcards: [in_fold(path).format(fold=wildcards.fold) for path in shared(wildcards)]


def fold_files(*names):
    """Inputs by name, from the jobs of the fold."""
    return {name: of_fold(name) for name in names}


def fold_options(wildcards):
    """Options of the split of a fold."""
    split = config["split"] | {"folds": config["folds"], "fold": int(wildcards.fold)}
    return eo.options(config | {"split": split}, "split")


def calibration_of_fold_map(wildcards):
    """The calibration of the fold, as the model's own map has one."""
    return in_fold(FILES["calibration"]).format(fold=wildcards.fold) if calibration_of_map(wildcards) else []


# What a profile requests for a stage holds for its folds.
OF_FOLD = ("split", "train", "calibrate", "predict", "evaluate")
share_requests(workflow, {f"{name}_fold": name for name in OF_FOLD})


use rule split as split_fold with:
    output:
        chips=of_fold("chips"),
        statistics=of_fold("statistics"),
        map=in_fold(f"{RESULTS}/split.png"),
        places=in_fold(f"{RESULTS}/split.gpkg"),
    log:
        f"{RESULTS}/logs/split/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/split/fold-{{fold}}.tsv"
    params:
        **params_for("split", folders=["tiles", "labels"]) | {"options": fold_options},


use rule train as train_fold with:
    input:
        **eo.named_files(config, "train"),
        **files("tiles", "labels"),
        **fold_files("chips", "statistics"),
    output:
        root=of_fold("model"),
    log:
        f"{RESULTS}/logs/train/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train/fold-{{fold}}.tsv"
    resources:
        **machine("train", "--state", f"{STATE}/train-fold-{{fold}}", mem_mb=eo.training_mb(config), disk_mb=1000),
        runtime=eo.training_minutes(config),


use rule calibrate as calibrate_fold with:
    input:
        **files("tiles", "labels"),
        **fold_files("model", "chips"),
    output:
        calibration=of_fold("calibration"),
    log:
        f"{RESULTS}/logs/calibrate/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/calibrate/fold-{{fold}}.tsv"


use rule predict as predict_fold with:
    input:
        **fold_files("model"),
        tiles=tiles_of_map,
        calibration=calibration_of_fold_map,
    output:
        classes=in_fold(f"{RESULTS}/maps/{{map}}/classes.tif"),
        probabilities=in_fold(f"{RESULTS}/maps/{{map}}/probabilities.tif"),
    log:
        f"{RESULTS}/logs/predict/fold-{{fold}}-{{map}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/fold-{{fold}}-{{map}}.tsv"


use rule evaluate as evaluate_fold with:
    input:
        **files("tiles", "labels"),
        **fold_files("classes", "probabilities", "chips"),
    output:
        metrics=of_fold("metrics"),
    log:
        f"{RESULTS}/logs/evaluate/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/fold-{{fold}}.tsv"
