def tiles_of_map(wildcards):
    """One scene for a map of its name; all scenes for the mosaic."""
    if wildcards.map == "mosaic":
        return all_tiles(wildcards)
    return f"{RESULTS}/tiles/{wildcards.map}.zarr/manifest.json"


def all_maps(name):
    """One map of all scenes where labels hold for all; else one for each scene."""
    return lambda wildcards: [f"{RESULTS}/maps/{m}/{name}.tif" for m in (scenes() if PER_SCENE else ["mosaic"])]


def all_items(wildcards):
    """The frozen STAC Items."""
    return [f"{RESULTS}/items/{scene}.geojson" for scene in scenes()]


rule predict:
    "A map of classes and one of their probabilities, as cloud-optimised GeoTIFFs."
    input:
        model=f"{RESULTS}/model/manifest.json",
        tiles=tiles_of_map,
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
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, input, attempt: (20 + volume(input.tiles) // 10) * attempt,
    params:
        model=subpath(input.model, parent=True),
        tiles=lambda wildcards, input: folders([input.tiles] if isinstance(input.tiles, str) else input.tiles),
        options=options("predict"),
    shell:
        "eopipe predict --model {params.model:q} --tiles {params.tiles:q} --classes {output.classes:q}"
        " --probabilities {output.probabilities:q} {params.options} {KNOBS[predict]} > {log:q} 2>&1"


rule evaluate:
    "Scores of the map where it was never trained, against two baselines."
    input:
        classes=all_maps("classes"),
        tiles=all_tiles,
        labels=all_labels,
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
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        tiles=lambda wildcards, input: folders(input.tiles),
        labels=lambda wildcards, input: folders(input.labels),
        options=options("evaluate"),
    shell:
        "eopipe evaluate --classes {input.classes:q} --tiles {params.tiles:q} --labels {params.labels:q}"
        " --chips {input.chips:q} --metrics {output.metrics:q} {params.options} {KNOBS[evaluate]} > {log:q} 2>&1"


rule report:
    "One page to read: verdict, maps, scores, data, provenance."
    input:
        metrics=f"{RESULTS}/metrics.json",
        model=f"{RESULTS}/model/manifest.json",
        chips=f"{RESULTS}/split.json",
        classes=all_maps("classes"),
        probabilities=all_maps("probabilities"),
        tiles=all_tiles,
        labels=all_labels,
        scenes=all_items,
    output:
        page=f"{RESULTS}/report.html",
        picture=f"{RESULTS}/map.png",
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        model=subpath(input.model, parent=True),
        tiles=lambda wildcards, input: folders(input.tiles),
        labels=lambda wildcards, input: folders(input.labels),
        options=options("report"),
    shell:
        "eopipe report --metrics {input.metrics:q} --model {params.model:q} --chips {input.chips:q}"
        " --classes {input.classes:q} --probabilities {input.probabilities:q} --tiles {params.tiles:q}"
        " --labels {params.labels:q} --scenes {input.scenes:q} --page {output.page:q}"
        " --picture {output.picture:q} {params.options} {KNOBS[report]} > {log:q} 2>&1"
