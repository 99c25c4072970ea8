# Files of the crate beside folders and maps.
SINGLE = [
    *("grid.json", "selection.json", "split.json", "split.png", "split.gpkg", "statistics.json", "metrics.json"),
    *("export.json", "model.onnx", "report.html", "map.png", "model-card.md", "data-card.md"),
    *(["calibration.json"] if IS_MOSAIC else []),
]
FILES["single"] = [f"{RESULTS}/{name}" for name in SINGLE]


rule crate:
    "Package the run as a Provenance Run Crate: data, model, maps, and every job."
    input:
        **files("frozen", "scenes", "fetched", "stores", "tiles", "labels", "model", "maps", "single", "catalog"),
    output:
        root=f"{RESULTS}/crate/manifest.json",
    log:
        f"{RESULTS}/logs/crate.log",
    benchmark:
        f"{RESULTS}/benchmarks/crate.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        **machine("crate", mem_mb=1000, runtime=lambda wildcards, input: 20 + eo.volume(input.stores) // 1000),
        lists=f"{STATE}/crate",
    params:
        **params_for("crate"),
        **eo.workflow_params(config_files(workflow), WORKFLOW),
        records=lambda wildcards, input: eo.records(input),
        payload=lambda wildcards, input: [*input.single, *input.maps, *eo.folders(input.model)],
        crate=subpath(output.root, parent=True),
    # Files list the paths, since a command may not be as long as those of many thousand scenes.
    shell:
        "mkdir -p {resources.lists:q}"
        " && printf '%s\\n' {params.records:q} > {resources.lists:q}/records.txt"
        " && printf '%s\\n' {params.payload:q} \"$EOPIPE_WORKFLOW\"/workflow > {resources.lists:q}/payload.txt"
        " && printf '%s\\n' {input.scenes:q} > {resources.lists:q}/scenes.txt\n"
        "exec eopipe crate --records @{resources.lists:q}/records.txt --payload @{resources.lists:q}/payload.txt"
        ' --scenes @{resources.lists:q}/scenes.txt --workflow "$EOPIPE_WORKFLOW"/Snakefile --crate {params.crate:q}'
        " {params.more} {params.options} {resources.knobs} > {log:q} 2>&1"
