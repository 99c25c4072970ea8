# A chip set that the run packs itself.
checkpoint import:
    "Pack chips that exist already into the stores of a chip set."
    input:
        **eo.list_of_windows(config),
    output:
        # Snakemake removes it before the job: without the record the job runs again, and the set itself stays.
        record=f"{STORES}.run.json",
    log:
        f"{RESULTS}/logs/import.log",
    benchmark:
        f"{RESULTS}/benchmarks/import.tsv"
    conda:
        ENVIRONMENT
    threads: config["import"]["threads"]
    resources:
        **machine("import", mem_mb=3000, runtime=60),
    params:
        **params_for("import"),
        # Thousands of inputs would take Snakemake minutes.
        files=lambda wildcards: eo.state_of_files(config["import"]),
        chip_set=STORES,
    shell:
        "exec eopipe import {params.chip_set:q} {params.options} {resources.knobs} > {log:q} 2>&1"


# For the readings of a module that do not see it.
run_images.checkpoint_of("import", RESULTS, checkpoints)
