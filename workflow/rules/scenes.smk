CATALOG = shlex.join(to_args(stage("search").of(Input)[0], config["search"]["catalog"]))


checkpoint search:
    "Find scenes in the catalog and freeze their list and the grid."
    input:
        **named_files("search"),
    output:
        items=f"{RESULTS}/items/manifest.json",
        grid=f"{RESULTS}/grid.json",
    log:
        f"{RESULTS}/logs/search.log",
    benchmark:
        f"{RESULTS}/benchmarks/search.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=10,
    params:
        items=subpath(output.items, parent=True),
        options=options("search"),
    shell:
        "eopipe search --items {params.items:q} --grid {output.grid:q} {params.options} {KNOBS[search]}"
        " > {log:q} 2>&1"


rule fetch:
    "Bring the assets of one scene to disk and check size and checksum."
    input:
        item=lambda wildcards: f"{Path(checkpoints.search.get().output.items).parent}/{wildcards.scene}.geojson",
    output:
        root=f"{RESULTS}/scenes/{{scene}}/manifest.json",
    log:
        f"{RESULTS}/logs/fetch/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch/{{scene}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        scene=subpath(output.root, parent=True),
        catalog=CATALOG,
    shell:
        "eopipe fetch --item {input.item:q} --scene {params.scene:q} {params.catalog}"
        " --parts {STATE:q}/fetch/{wildcards.scene:q} {KNOBS[fetch]} > {log:q} 2>&1"
