rule predict:
    "A map of classes and one of their probabilities, as cloud-optimised GeoTIFFs."
    input:
        model=f"{RESULTS}/model/manifest.json",
        tiles=tiles_of,
    output:
        classes=f"{RESULTS}/maps/{{map}}/classes.tif",
        probabilities=f"{RESULTS}/maps/{{map}}/probabilities.tif",
    log:
        f"{RESULTS}/logs/predict/{{map}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/{{map}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    threads: config["predict"]["threads"]
    resources:
        knobs=knobs("predict"),
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, input, attempt: (20 + eo.volume(input.tiles) // 10)
        * attempt,
        disk_mb=lambda wildcards, input: 100 + eo.volume(input.tiles),
    params:
        model=subpath(input.model, parent=True),
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        options=options("predict"),
        revision=eo.revision("predict"),
    shell:
        "eopipe predict --model {params.model:q} --tiles {params.tiles:q} --classes {output.classes:q}"
        " --probabilities {output.probabilities:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule evaluate:
    "Scores of the map where it was never trained, against two baselines."
    input:
        classes=each_map("classes"),
        tiles=each_image,
        labels=each_label,
        chips=f"{RESULTS}/split.json",
    output:
        metrics=f"{RESULTS}/metrics.json",
    log:
        f"{RESULTS}/logs/evaluate.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("evaluate"),
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, input, attempt: (20 + eo.volume(input.tiles) // 50)
        * attempt,
    params:
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        labels=lambda wildcards, input: eo.folders(input.labels),
        options=options("evaluate"),
        revision=eo.revision("evaluate"),
    shell:
        "eopipe evaluate --classes {input.classes:q} --tiles {params.tiles:q} --labels {params.labels:q}"
        " --chips {input.chips:q} --metrics {output.metrics:q} {params.options} {resources.knobs} > {log:q} 2>&1"


rule report:
    "One page to read: verdict, maps, scores, data, provenance."
    input:
        metrics=f"{RESULTS}/metrics.json",
        model=f"{RESULTS}/model/manifest.json",
        chips=f"{RESULTS}/split.json",
        classes=each_map("classes"),
        probabilities=each_map("probabilities"),
        tiles=each_image,
        labels=each_label,
        scenes=each("items/{}.geojson"),
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
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("report"),
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        model=subpath(input.model, parent=True),
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        labels=lambda wildcards, input: eo.folders(input.labels),
        options=options("report"),
        revision=eo.revision("report"),
    shell:
        "eopipe report --metrics {input.metrics:q} --model {params.model:q} --chips {input.chips:q}"
        " --classes {input.classes:q} --probabilities {input.probabilities:q} --tiles {params.tiles:q}"
        " --labels {params.labels:q} --scenes {input.scenes:q} --page {output.page:q}"
        " --picture {output.picture:q} --model-card {output.model_card:q} --data-card {output.data_card:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule catalog:
    "Model, maps and tiles as a static STAC catalog that a later run can search."
    input:
        model=f"{RESULTS}/model/manifest.json",
        classes=each_map("classes"),
        probabilities=each_map("probabilities"),
        tiles=each_image,
        scenes=each("items/{}.geojson"),
        metrics=f"{RESULTS}/metrics.json",
    output:
        root=f"{RESULTS}/catalog/manifest.json",
    log:
        f"{RESULTS}/logs/catalog.log",
    benchmark:
        f"{RESULTS}/benchmarks/catalog.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        model=subpath(input.model, parent=True),
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        catalog=subpath(output.root, parent=True),
        options=options("catalog"),
        revision=eo.revision("catalog"),
    shell:
        "eopipe catalog --model {params.model:q} --classes {input.classes:q} --probabilities {input.probabilities:q}"
        " --tiles {params.tiles:q} --scenes {input.scenes:q} --metrics {input.metrics:q} --catalog {params.catalog:q}"
        " {params.options} > {log:q} 2>&1"
