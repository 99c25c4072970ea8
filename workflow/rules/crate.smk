# For their records alone.
FILES["of_parts_and_folds"] = partial(repeated.of_parts_and_folds, config, FILES["classes"])

# Files list the paths, since the paths of many thousand scenes are too long for a command. The folder of the workflow
# stays out of them: it may name its owner's home.
LISTED = {"records": "{params.records:q}"} | ({} if IS_CHIP_SET else {"scenes": "{input.scenes:q}"})
# The payload is the last one, since the folder of the workflow follows it.
LISTED |= {"payload": "{params.payload:q}"}
WRITE_LISTS = f"mkdir -p {STATE}/crate\n" + "".join(
    f"printf '%s\\n' {paths} > {STATE}/crate/{name}.txt\n" for name, paths in LISTED.items()
)
LISTS = (
    " ".join(f"--{name} @{STATE}/crate/{name}.txt" for name in LISTED)
    + ' "$EOPIPE_WORKFLOW"/workflow'
    + ' --workflow "$EOPIPE_WORKFLOW"/Snakefile'
)


rule crate:
    "Package the run as a Provenance Run Crate: data, model, maps, and every job."
    input:
        **files("frozen", "scenes", "fetched", "stores", "tiles", "labels", "model", "maps", "single"),
        **files("catalog", "maps_of_trials", "rung_models", "member_maps", "of_parts_and_folds"),
    output:
        root=f"{RESULTS}/crate/manifest.json",
    log:
        f"{RESULTS}/logs/crate.log",
    benchmark:
        f"{RESULTS}/benchmarks/crate.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("crate", mem_mb=1000, runtime=lambda wildcards, input: 20 + eo.volume(input.stores) // 1000),
    params:
        **params_for("crate"),
        **eo.workflow_params(config_files(workflow), WORKFLOW),
        records=lambda wildcards, input: eo.records(input),
        payload=lambda wildcards, input: eo.folders([*input.single, *input.maps, input.model]),
        crate=subpath(output.root, parent=True),
    shell:
        WRITE_LISTS + "exec eopipe crate " + LISTS + " --crate {params.crate:q} {params.more} {params.options}"
        " {resources.knobs} > {log:q} 2>&1"
