checkpoint search:
    "Find scenes in the catalog and freeze their list and the grid."
    input:
        **eo.named_files(config, "search"),
    output:
        root=f"{RESULTS}/items/manifest.json",
        grid=f"{RESULTS}/grid.json",
        selection=f"{RESULTS}/selection.json",
    log:
        f"{RESULTS}/logs/search.log",
    benchmark:
        f"{RESULTS}/benchmarks/search.tsv"
    localrule: not config["online_nodes"]
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("search"),
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 10 * attempt,
    params:
        folder=subpath(output.root, parent=True),
        options=options("search"),
        revision=eo.revision("search"),
    shell:
        "eopipe search --items {params.folder:q} --grid {output.grid:q} --selection {output.selection:q} {params.options}"
        " {resources.knobs} > {log:q} 2>&1"


rule fetch:
    "Bring the assets of one scene to disk and check size and checksum."
    input:
        **({"grid": f"{RESULTS}/grid.json"} if config["fetch"]["windows"] else {}),
        item=lambda wildcards: f"{Path(checkpoints.search.get().output.root).parent}/{wildcards.scene}.geojson",
    output:
        root=f"{RESULTS}/scenes/{{scene}}/manifest.json",
    log:
        f"{RESULTS}/logs/fetch/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch/{{scene}}.tsv"
    localrule: not config["online_nodes"]
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
        # Only windows depend on the grid: whole assets stay when the area grows.
        more=f"--grid {RESULTS}/grid.json" if config["fetch"]["windows"] else "",
        options=options("fetch"),
        revision=eo.revision("fetch"),
    shell:
        "eopipe fetch --item {input.item:q} --scene {params.scene:q} {params.catalog} {params.more}"
        " {params.options} {resources.knobs}"
        " > {log:q} 2>&1"


rule fetched:
    "Every scene on disk: before the network goes, or so that a cluster gets all scenes at once."
    input:
        each("scenes/{}/manifest.json"),
    localrule: True
