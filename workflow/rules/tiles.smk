rule preprocess:
    "One scene onto the grid, as one sharded Zarr store."
    input:
        scene=f"{RESULTS}/scenes/{{scene}}/manifest.json",
        grid=f"{RESULTS}/grid.json",
    output:
        root=f"{RESULTS}/tiles/{{scene}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/preprocess/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/preprocess/{{scene}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    # Beyond four, more scenes at a time gain more than more threads for each.
    threads: config["preprocess"]["threads"] or 4
    resources:
        knobs=lambda wildcards, threads: knobs("preprocess", threads=threads),
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, input, attempt: (
            10 + eo.volume([input.scene]) // 100
        )
        * attempt,
        disk_mb=lambda wildcards, input: 100 + 3 * eo.volume([input.scene]),
    params:
        scene=subpath(input.scene, parent=True),
        tiles=subpath(output.root, parent=True),
        options=options("preprocess"),
        revision=eo.revision("preprocess"),
    shell:
        "eopipe preprocess --scene {params.scene:q} --grid {input.grid:q} --tiles {params.tiles:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule composite:
    "The scenes of one period to one image, as a tile store."
    input:
        tiles=lambda wildcards: each(
            "tiles/{}.zarr/manifest.json", lambda: periods()[wildcards.period]
        )(wildcards),
    output:
        root=f"{RESULTS}/composites/{{period}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/composite/{{period}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/composite/{{period}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("composite"),
        mem_mb=lambda wildcards, attempt: (1000 + config["composite"]["memory_mb"])
        * attempt,
        runtime=lambda wildcards, input, attempt: (10 + eo.volume(input.tiles) // 1000)
        * attempt,
        disk_mb=lambda wildcards, input: 100 + eo.volume(input.tiles),
    params:
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        composite=subpath(output.root, parent=True),
        options=options("composite"),
        revision=eo.revision("composite"),
    shell:
        "eopipe composite --tiles {params.tiles:q} --composite {params.composite:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule label:
    "Labels onto the grid, with a mask of where they hold."
    input:
        unpack(label_source),
        grid=f"{RESULTS}/grid.json",
    output:
        root=f"{RESULTS}/labels/{{scene}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/label/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/label/{{scene}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("label"),
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, attempt: 20 * attempt,
    params:
        scene=lambda wildcards, input: (
            f"--scene {eo.folders([input.scene])[0]}" if PER_SCENE else ""
        ),
        labels=subpath(output.root, parent=True),
        options=options("label"),
        revision=eo.revision("label"),
    shell:
        "eopipe label --grid {input.grid:q} --labels {params.labels:q} {params.scene}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule split:
    "Chips to train, val and test, with a leakage audit and what the training chips measure."
    input:
        **eo.named_files(config, "split"),
        tiles=each_image,
        labels=each_label,
    output:
        chips=f"{RESULTS}/split.json",
        statistics=f"{RESULTS}/statistics.json",
        map=f"{RESULTS}/split.png",
        places=f"{RESULTS}/split.gpkg",
    log:
        f"{RESULTS}/logs/split.log",
    benchmark:
        f"{RESULTS}/benchmarks/split.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("split"),
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, input, attempt: (10 + len(eo.folders(input.tiles)))
        * attempt,
    params:
        tiles=lambda wildcards, input: eo.folders(input.tiles),
        labels=lambda wildcards, input: eo.folders(input.labels),
        options=options("split"),
        revision=eo.revision("split"),
    shell:
        "eopipe split --tiles {params.tiles:q} --labels {params.labels:q} --chips {output.chips:q}"
        " --statistics {output.statistics:q} --map {output.map:q} --places {output.places:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"
