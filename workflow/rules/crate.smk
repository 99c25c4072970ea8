ALONE = (
    "grid.json",
    "selection.json",
    "split.json",
    "split.png",
    "split.gpkg",
    "statistics.json",
    "metrics.json",
    "export.json",
    "model.onnx",
    "report.html",
    "map.png",
    "model-card.md",
    "data-card.md",
)


rule crate:
    "The run as a Provenance Run Crate: data, model, maps, and what every job did."
    input:
        frozen=f"{RESULTS}/items/manifest.json",
        scenes=each("items/{}.geojson"),
        fetched=each("scenes/{}/manifest.json"),
        tiles=each("tiles/{}.zarr/manifest.json"),
        images=each_image,
        labels=each_label,
        model=f"{RESULTS}/model/manifest.json",
        maps=lambda wildcards: each_map("classes")(wildcards)
        + each_map("probabilities")(wildcards),
        alone=[f"{RESULTS}/{name}" for name in ALONE],
        stac=f"{RESULTS}/catalog/manifest.json",
    output:
        root=f"{RESULTS}/crate/manifest.json",
    log:
        f"{RESULTS}/logs/crate.log",
    benchmark:
        f"{RESULTS}/benchmarks/crate.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        knobs=knobs("crate"),
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, input, attempt: (20 + eo.volume(input.tiles) // 1000)
        * attempt,
    params:
        records=lambda wildcards, input: eo.records(input),
        payload=lambda wildcards, input: [
            *input.alone,
            *input.maps,
            *eo.folders([input.model]),
        ],
        crate=subpath(output.root, parent=True),
        more=eo.about_run(workflow.configfiles, WORKFLOW),
        workflow=eo.digest_of(WORKFLOW),
        options=options("crate"),
        revision=eo.revision("crate"),
    shell:
        'eopipe crate --records {params.records:q} --payload {params.payload:q} "$EOPIPE_WORKFLOW"/workflow'
        ' --scenes {input.scenes:q} --workflow "$EOPIPE_WORKFLOW"/Snakefile --crate {params.crate:q} {params.more} {params.options} {resources.knobs} > {log:q} 2>&1'
