# Labels: what a model is trained with, and what tests the maps of a finished one.
rule label:
    "Rasterise labels onto the grid, with a mask of valid pixels."
    input:
        unpack(label_source),
        **files("grid"),
    output:
        root=f"{RESULTS}/labels/{{scene}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/label/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/label/{{scene}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("label", mem_mb=1500, runtime=20),
    params:
        **params_for("label"),
        scene=lambda wildcards, input: f"--scene {eo.folders(input.scene)[0]}" if PER_SCENE else "",
        labels=subpath(output.root, parent=True),
    shell:
        "exec eopipe label --grid {input.grid:q} --labels {params.labels:q} {params.scene}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule evaluate:
    "Score the map on the test split, against three baselines; a finished model on all labels, against none."
    input:
        **files("classes", "probabilities", "tiles", "labels", "chips", "tested_model", "member_maps"),
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
        **params_for("evaluate", folders=["tiles", "labels"], optional=["chips", "tested_model", "member_maps"]),
    shell:
        "exec eopipe evaluate --classes {input.classes:q} --probabilities {input.probabilities:q} --tiles"
        " {params.tiles:q} --labels {params.labels:q} {params.chips:q} {params.tested_model:q}"
        " {params.member_maps:q} --metrics"
        " {output.metrics:q} {params.options} {resources.knobs} > {log:q} 2>&1"
