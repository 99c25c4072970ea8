# Beyond four threads, more scenes at a time are faster than more threads for each; for small ones beyond one.
rule preprocess:
    "Warp one scene onto the grid, as one sharded Zarr store."
    input:
        scene=f"{RESULTS}/scenes/{{scene}}/manifest.json",
        grid=FILES["grid"],
    output:
        root=f"{RESULTS}/tiles/{{scene}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/preprocess/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/preprocess/{{scene}}.tsv"
    conda:
        ENVIRONMENT
    threads: eo.threads_of_scene(config, partial(has_job_arrays, workflow))
    resources:
        **machine("preprocess", mem_mb=1500, runtime=lambda wildcards, input: 10 + eo.volume([input.scene]) // 100),
        disk_mb=lambda wildcards, input: 100 + 3 * eo.volume([input.scene]),
    params:
        **params_for("preprocess"),
        scene=subpath(input.scene, parent=True),
        tiles=subpath(output.root, parent=True),
    shell:
        "exec eopipe preprocess --scene {params.scene:q} --grid {input.grid:q} --tiles {params.tiles:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"


# Pixels of all dates, and the program.
COMPOSITE_MB = config["composite"]["memory_mb"] + 1000


rule composite:
    "Composite the scenes of one period to one image, as a tile store."
    input:
        tiles=tiles_of_period,
    output:
        root=f"{RESULTS}/composites/{{period}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/composite/{{period}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/composite/{{period}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine(
            "composite", mem_mb=COMPOSITE_MB, runtime=lambda wildcards, input: 10 + eo.volume(input.tiles) // 1000
        ),
        disk_mb=lambda wildcards, input: 100 + eo.volume(input.tiles),
    params:
        **params_for("composite", folders=["tiles"]),
        composite=subpath(output.root, parent=True),
    shell:
        "exec eopipe composite --tiles {params.tiles:q} --composite {params.composite:q}"
        " {params.options} {resources.knobs} > {log:q} 2>&1"
