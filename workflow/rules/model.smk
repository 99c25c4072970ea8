rule train:
    "Train on the chips with torchrun; goes on from its checkpoint after a failure."
    input:
        **eo.named_files(config, "train"),
        tiles=each_image,
        labels=each_label,
        chips=f"{RESULTS}/split.json",
        statistics=f"{RESULTS}/statistics.json",
    output:
        root=f"{RESULTS}/model/manifest.json",
    log:
        f"{RESULTS}/logs/train.log",
    benchmark:
        f"{RESULTS}/benchmarks/train.tsv"
    conda:
        "../envs/eopipe.yaml"
    threads: config["train"]["processes"] * config["train"]["threads"]
    resources:
        knobs=knobs("train", "--state", f"{STATE}/train"),
        # What a process keeps decoded is bounded, however many scenes there are.
        mem_mb=lambda wildcards, input, attempt: (
            1500 + min(config["train"]["cache_mb"], 4 * eo.volume(input.tiles))
        )
        * config["train"]["processes"]
        * attempt,
        # It goes on where it was stopped, so a retry needs no more.
        runtime=lambda wildcards, input: min(
            720, 60 + eo.volume(input.tiles) * config["train"]["epochs"] // 100
        ),
        disk_mb=1000,  # checkpoints
    params:
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        labels=lambda wildcards, input: eo.folders(input.labels),
        model=subpath(output.root, parent=True),
        options=options("train"),
        revision=eo.revision("train"),
    shell:
        # Signals of a scheduler reach the shell too, and Snakemake waits for no more than that.
        "exec "
        "eopipe train --tiles {params.tiles:q} --labels {params.labels:q} --chips {input.chips:q}"
        " --statistics {input.statistics:q} --model {params.model:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule export:
    "The model as ONNX, compared with the model on real chips."
    input:
        model=f"{RESULTS}/model/manifest.json",
        tiles=lambda wildcards: each_image(wildcards)[0],
    output:
        onnx=f"{RESULTS}/model.onnx",
        check=f"{RESULTS}/export.json",
    log:
        f"{RESULTS}/logs/export.log",
    benchmark:
        f"{RESULTS}/benchmarks/export.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("export"),
        mem_mb=lambda wildcards, attempt: 2500 * attempt,
        runtime=lambda wildcards, attempt: 20 * attempt,
    params:
        model=subpath(input.model, parent=True),
        tiles=lambda wildcards, input: eo.folders([input.tiles]),
        options=options("export"),
        revision=eo.revision("export"),
    shell:
        "eopipe export --model {params.model:q} --tiles {params.tiles:q} --onnx {output.onnx:q}"
        " --check {output.check:q} {params.options} {resources.knobs} > {log:q} 2>&1"
