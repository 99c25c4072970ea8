def every_output(wildcards):
    """What the jobs before the crate made: their run records lie beside these files."""
    found = [f"{RESULTS}/items/manifest.json", f"{RESULTS}/split.json", f"{RESULTS}/model/manifest.json"]
    found += [f"{RESULTS}/metrics.json", f"{RESULTS}/model.onnx", f"{RESULTS}/report.html"]
    found += [f"{RESULTS}/scenes/{scene}/manifest.json" for scene in scenes()]
    return found + all_tiles(wildcards) + all_labels(wildcards) + all_maps("classes")(wildcards)


rule crate:
    "The run as a Provenance Run Crate: data, model, maps, and what every job did."
    input:
        made=every_output,
        scenes=all_items,
        payload=[
            f"{RESULTS}/{name}"
            for name in ("grid.json", "split.json", "metrics.json", "model.onnx", "export.json", "report.html", "map.png")
        ],
        model=f"{RESULTS}/model/manifest.json",
        maps=lambda wildcards: all_maps("classes")(wildcards) + all_maps("probabilities")(wildcards),
        workflow=workflow.basedir + "/Snakefile",
    output:
        root=f"{RESULTS}/crate/manifest.json",
    log:
        f"{RESULTS}/logs/crate.log",
    benchmark:
        f"{RESULTS}/benchmarks/crate.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=30,
    params:
        records=lambda wildcards, input: [record(path) for path in input.made],
        payload=lambda wildcards, input: [*input.payload, *folders([input.model]), *input.maps],
        crate=subpath(output.root, parent=True),
        options=options("crate"),
    shell:
        "eopipe crate --records {params.records:q} --payload {params.payload:q} --scenes {input.scenes:q}"
        " --workflow {input.workflow:q} --crate {params.crate:q} {params.options} {KNOBS[crate]} > {log:q} 2>&1"
