# A cross-validation beside the model: each fold is split, trained, mapped and scored as the model is.
in_fold = partial(repeated.in_each, "fold", RESULTS)


wildcard_constraints:
    fold="[0-9]+",


# What a profile requests for a stage holds for its folds.
OF_FOLD = ("split", "train", "calibrate", "predict", "evaluate")
share_requests(workflow, {f"{name}_fold": name for name in OF_FOLD})


use rule split as split_fold with:
    output:
        chips=in_fold(FILES["chips"]),
        statistics=in_fold(FILES["statistics"]),
        map=in_fold(f"{RESULTS}/split.png"),
        outlines=in_fold(f"{RESULTS}/split.gpkg"),
    log:
        f"{RESULTS}/logs/split/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/split/fold-{{fold}}.tsv"


use rule train as train_fold with:
    input:
        **eo.named_files(config, "train"),
        **files("tiles", "labels"),
        **{name: in_fold(file) for name, file in files("chips", "statistics").items()},
    output:
        root=in_fold(FILES["model"]),
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
        **{name: in_fold(file) for name, file in files("model", "chips").items()},
    output:
        calibration=in_fold(FILES["calibration"]),
    log:
        f"{RESULTS}/logs/calibrate/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/calibrate/fold-{{fold}}.tsv"


use rule predict as predict_fold with:
    input:
        **{name: in_fold(file) for name, file in files("model").items()},
        tiles=tiles_of_map,
        calibration=in_fold(FILES["calibration_of_map"]),
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
        **{name: in_fold(file) for name, file in files("classes", "probabilities", "chips").items()},
    output:
        metrics=in_fold(FILES["metrics"]),
    log:
        f"{RESULTS}/logs/evaluate/fold-{{fold}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/fold-{{fold}}.tsv"
