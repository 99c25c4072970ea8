# Split and training: what a finished model has behind it.
FILES["onnx"], FILES["tested_model"] = f"{RESULTS}/model.onnx", []
REPORT_FILES = {"model_card": f"{RESULTS}/model-card.md", "data_card": f"{RESULTS}/data-card.md"}


rule split:
    "Split chips into train, val and test, with a leakage audit and statistics of the training chips."
    input:
        **eo.named_files(config, "split"),
        **files("tiles", "labels"),
    output:
        chips=f"{RESULTS}/split.json",
        statistics=f"{RESULTS}/statistics.json",
        map=f"{RESULTS}/split.png",
        outlines=f"{RESULTS}/split.gpkg",
    log:
        f"{RESULTS}/logs/split.log",
    benchmark:
        f"{RESULTS}/benchmarks/split.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("split", mem_mb=2000, runtime=lambda wildcards, input: 10 + len(eo.folders(input.tiles))),
    params:
        **params_for("split", folders=["tiles", "labels"]),
    shell:
        "exec eopipe split --tiles {params.tiles:q} --labels {params.labels:q} --chips {output.chips:q}"
        " --statistics {output.statistics:q} --map {output.map:q} --outlines {output.outlines:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


# A run with trials or members has a training for each of them; the stage choose makes the model of the run.
KIND, TRAINED = repeated.kind_of_trainings(config), FILES["model"]
TRAINING = f"train/{KIND}-{{{KIND}}}" if KIND else "train"
if KIND:
    TRAINED = repeated.in_each(KIND, RESULTS, FILES["model"])


rule train:
    "Train on the chips with torchrun; resumes from its checkpoint after a failure."
    input:
        unpack(partial(eo.training_files, config)),
        **files("tiles", "labels", "chips", "statistics"),
    output:
        root=TRAINED,
    log:
        f"{RESULTS}/logs/{TRAINING}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{TRAINING}.tsv"
    conda:
        ENVIRONMENT
    threads: config["train"]["processes"] * config["train"]["threads"]
    resources:
        **machine("train", "--state", f"{STATE}/{TRAINING}", mem_mb=eo.training_mb(config), disk_mb=1000),
        runtime=eo.training_minutes(config),  # not more in a retry, which resumes from a checkpoint
    params:
        **params_for("train", folders=["tiles", "labels"], optional=["continued", "promoted"]),
        model=subpath(output.root, parent=True),
    shell:
        "exec eopipe train --tiles {params.tiles:q} --labels {params.labels:q} --chips {input.chips:q}"
        " --statistics {input.statistics:q} --model {params.model:q} {params.continued:q} {params.promoted:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule calibrate:
    "Fit the temperature of the probabilities of maps on the validation places."
    input:
        **files("model", "tiles", "labels", "chips"),
    output:
        calibration=FILES["calibration"],
    log:
        f"{RESULTS}/logs/calibrate.log",
    benchmark:
        f"{RESULTS}/benchmarks/calibrate.tsv"
    conda:
        ENVIRONMENT
    threads: config["predict"]["threads"] or 4
    resources:
        **machine("calibrate", mem_mb=3000, runtime=eo.minutes_of_map(config)),
    params:
        **params_for("calibrate", folders=["model", "tiles", "labels"]),
    shell:
        "exec eopipe calibrate --model {params.model:q} --tiles {params.tiles:q} --labels {params.labels:q} --chips"
        " {input.chips:q} --calibration {output.calibration:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule export:
    "Export the model to ONNX, compared with the model on real chips."
    input:
        **files("model"),
        tiles=lambda wildcards: FILES["tiles"](wildcards)[0],
    output:
        onnx=FILES["onnx"],
        check=f"{RESULTS}/export.json",
    log:
        f"{RESULTS}/logs/export.log",
    benchmark:
        f"{RESULTS}/benchmarks/export.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("export", mem_mb=2500, runtime=20),
    params:
        **params_for("export", folders=["tiles"]),
        model=subpath(input.model, parent=True),
    shell:
        "exec eopipe export --model {params.model:q} --tiles {params.tiles:q} --onnx {output.onnx:q}"
        " --check {output.check:q} {params.options} {resources.knobs} > {log:q} 2>&1"
