checkpoint search:
    "Search the catalog; freeze the list of scenes and the grid."
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
        ENVIRONMENT
    resources:
        **machine("search", mem_mb=1000, runtime=10),
    params:
        **params_for("search"),
        folder=subpath(output.root, parent=True),
    shell:
        "exec eopipe search --items {params.folder:q} --grid {output.grid:q} --selection {output.selection:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


SEARCH = run_images.checkpoint_of("search", RESULTS, checkpoints)


# Only windows depend on the grid: whole assets stay when the area grows.
rule fetch:
    "Download the assets of one scene and check size and checksum."
    input:
        **(files("grid") if config["fetch"]["windows"] else {}),
        item=lambda wildcards: f"{run_images.frozen_items(config, SEARCH)}/{wildcards.scene}.geojson",
    output:
        root=f"{RESULTS}/scenes/{{scene}}/manifest.json",
    log:
        f"{RESULTS}/logs/fetch/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch/{{scene}}.tsv"
    localrule: not config["online_nodes"]
    conda:
        ENVIRONMENT
    resources:
        **machine("fetch", "--parts", f"{STATE}/fetch/{{scene}}", mem_mb=1000, runtime=60),
    params:
        **params_for("fetch"),
        scene=subpath(output.root, parent=True),
        catalog=eo.catalog(config),
        more=f"--grid {RESULTS}/grid.json" if config["fetch"]["windows"] else "",
    shell:
        "exec eopipe fetch --item {input.item:q} --scene {params.scene:q} {params.catalog} {params.more}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


rule fetched:
    "Every scene on disk: before the network goes, or so that a cluster gets all scenes at once."
    input:
        each(f"{RESULTS}/scenes/{{}}/manifest.json"),
    localrule: True
