checkpoint search:
    "Find scenes in the catalog and freeze their list and the grid."
    input:
        **eo.named_files(config, "search"),
    output:
        root=f"{RESULTS}/items/manifest.json",
        grid=f"{RESULTS}/grid.json",
    log:
        f"{RESULTS}/logs/search.log",
    benchmark:
        f"{RESULTS}/benchmarks/search.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("search"),
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=10,
    params:
        folder=subpath(output.root, parent=True),
        options=options("search"),
    shell:
        "eopipe search --items {params.folder:q} --grid {output.grid:q} {params.options} {resources.knobs}"
        " > {log:q} 2>&1"


rule fetch:
    "Bring the assets of one scene to disk and check size and checksum."
    input:
        item=lambda wildcards: f"{Path(checkpoints.search.get().output.root).parent}/{wildcards.scene}.geojson",
    output:
        root=f"{RESULTS}/scenes/{{scene}}/manifest.json",
    log:
        f"{RESULTS}/logs/fetch/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch/{{scene}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=lambda wildcards: knobs(
            "fetch", "--parts", f"{STATE}/fetch/{wildcards.scene}"
        ),
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        scene=subpath(output.root, parent=True),
        catalog=eo.catalog(config),
    shell:
        "eopipe fetch --item {input.item:q} --scene {params.scene:q} {params.catalog} {resources.knobs}"
        " > {log:q} 2>&1"
