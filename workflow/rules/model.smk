rule train:
    "Train on the chips with torchrun; resumes from its checkpoint after a failure."
    input:
        **eo.named_files(config, "train"),
        **files("tiles", "labels", "chips", "statistics"),
    output:
        root=f"{RESULTS}/model/manifest.json",
    log:
        f"{RESULTS}/logs/train.log",
    benchmark:
        f"{RESULTS}/benchmarks/train.tsv"
    conda:
        ENVIRONMENT
    threads: config["train"]["processes"] * config["train"]["threads"]
    resources:
        **machine("train", "--state", f"{STATE}/train", mem_mb=eo.training_mb(config), disk_mb=1000),
        runtime=eo.training_minutes(config),  # not more in a retry, which resumes from a checkpoint
    params:
        **params_for("train", folders=["tiles", "labels"]),
        model=subpath(output.root, parent=True),
    shell:
        "exec eopipe train --tiles {params.tiles:q} --labels {params.labels:q} --chips {input.chips:q}"
        " --statistics {input.statistics:q} --model {params.model:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule export:
    "Export the model to ONNX, compared with the model on real chips."
    input:
        **files("model"),
        tiles=lambda wildcards: FILES["tiles"](wildcards)[0],
    output:
        onnx=f"{RESULTS}/model.onnx",
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
