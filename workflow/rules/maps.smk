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
    threads: config["calibrate"]["threads"]
    resources:
        **machine("calibrate", mem_mb=3000, runtime=lambda wildcards, input: 20 + eo.volume(input.tiles) // 10),
    params:
        **params_for("calibrate", folders=["model", "tiles", "labels"]),
    shell:
        "exec eopipe calibrate --model {params.model:q} --tiles {params.tiles:q} --labels {params.labels:q} --chips"
        " {input.chips:q} --calibration {output.calibration:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule predict:
    "Map classes and their probabilities, as cloud-optimised GeoTIFFs."
    input:
        **files("model"),
        tiles=tiles_of_map,
        calibration=calibration_of_map,
    output:
        classes=f"{RESULTS}/maps/{{map}}/classes.tif",
        probabilities=f"{RESULTS}/maps/{{map}}/probabilities.tif",
    log:
        f"{RESULTS}/logs/predict/{{map}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/{{map}}.tsv"
    conda:
        ENVIRONMENT
    threads: config["predict"]["threads"]
    resources:
        **machine("predict", mem_mb=3000, runtime=lambda wildcards, input: 20 + eo.volume(input.tiles) // 10),
        disk_mb=lambda wildcards, input: 100 + eo.volume(input.tiles),
    params:
        **params_for("predict", folders=["model", "tiles"], optional=["calibration"]),
    shell:
        "exec eopipe predict --model {params.model:q} --tiles {params.tiles:q} {params.calibration:q} {params.options}"
        " --classes {output.classes:q} --probabilities {output.probabilities:q} {resources.knobs} > {log:q} 2>&1"


rule evaluate:
    "Score the map on the test split, against three baselines."
    input:
        **files("classes", "probabilities", "tiles", "labels", "chips"),
    output:
        metrics=f"{RESULTS}/metrics.json",
    log:
        f"{RESULTS}/logs/evaluate.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("evaluate", mem_mb=3000, runtime=lambda wildcards, input: 20 + eo.volume(input.tiles) // 50),
    params:
        **params_for("evaluate", folders=["tiles", "labels"]),
    shell:
        "exec eopipe evaluate --classes {input.classes:q} --probabilities {input.probabilities:q} --tiles"
        " {params.tiles:q} --labels {params.labels:q} --chips {input.chips:q} --metrics {output.metrics:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule report:
    "Write a one-page report: verdict, maps, scores, data, provenance."
    input:
        **files("metrics", "model", "chips", "classes", "probabilities", "tiles", "labels", "scenes", "fold_metrics"),
    output:
        page=f"{RESULTS}/report.html",
        picture=f"{RESULTS}/map.png",
        model_card=f"{RESULTS}/model-card.md",
        data_card=f"{RESULTS}/data-card.md",
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("report", mem_mb=lambda wildcards, input: 2000 + len(input.tiles) // 10, runtime=30),
    params:
        **params_for("report", folders=["model", "tiles", "labels"], optional=["scenes", "fold_metrics"]),
    shell:
        "exec eopipe report --metrics {input.metrics:q} --model {params.model:q} --chips {input.chips:q} --classes"
        " {input.classes:q} --probabilities {input.probabilities:q} --tiles {params.tiles:q} --labels"
        " {params.labels:q} {params.scenes:q} --page {output.page:q} --picture {output.picture:q} --model-card"
        " {output.model_card:q} --data-card {output.data_card:q} {params.fold_metrics:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule catalog:
    "Export model, maps and tiles as a static STAC catalog that a later run can search."
    input:
        **files("model", "classes", "probabilities", "tiles", "scenes", "metrics"),
        onnx=f"{RESULTS}/model.onnx",
    output:
        root=f"{RESULTS}/catalog/manifest.json",
    log:
        f"{RESULTS}/logs/catalog.log",
    benchmark:
        f"{RESULTS}/benchmarks/catalog.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("catalog", mem_mb=1000, runtime=30),
    params:
        **params_for("catalog", folders=["model", "tiles"], optional=["scenes"]),
        catalog=subpath(output.root, parent=True),
    shell:
        "exec eopipe catalog --model {params.model:q} --classes {input.classes:q} --probabilities"
        " {input.probabilities:q} --tiles {params.tiles:q} {params.scenes:q} --metrics {input.metrics:q}"
        " --onnx {input.onnx:q} --catalog {params.catalog:q} {params.options} > {log:q} 2>&1"
