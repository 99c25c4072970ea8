# Labels that are an asset of each scene differ from scene to scene; a file holds for all.
PER_SCENE = config["label"]["asset"] is not None


def label_inputs(wildcards):
    """Where the labels of a scene come from."""
    if PER_SCENE:
        return {"scene": f"{RESULTS}/scenes/{wildcards.scene}/manifest.json"}
    return named_files("label")


def all_tiles(wildcards):
    """The tile stores of every scene."""
    return [f"{RESULTS}/tiles/{scene}.zarr/manifest.json" for scene in scenes()]


def all_labels(wildcards):
    """The label stores: one for each scene, or one for all."""
    return [f"{RESULTS}/labels/{name}.zarr/manifest.json" for name in (scenes() if PER_SCENE else ["all"])]


def folders(manifests):
    """The folders that manifests stand for."""
    return [str(Path(m).parent) for m in manifests]


rule preprocess:
    "One scene onto the grid, as one sharded Zarr store."
    input:
        scene=f"{RESULTS}/scenes/{{scene}}/manifest.json",
        grid=f"{RESULTS}/grid.json",
    output:
        root=f"{RESULTS}/tiles/{{scene}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/preprocess/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/preprocess/{{scene}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=lambda wildcards, input, attempt: (10 + volume(input.scene) // 100) * attempt,
        disk_mb=lambda wildcards, input: 100 + 3 * volume(input.scene),
    params:
        scene=subpath(input.scene, parent=True),
        tiles=subpath(output.root, parent=True),
        options=options("preprocess"),
    shell:
        "eopipe preprocess --scene {params.scene:q} --grid {input.grid:q} --tiles {params.tiles:q}"
        " {params.options} {KNOBS[preprocess]} > {log:q} 2>&1"


rule label:
    "Labels onto the grid, with a mask of where they hold."
    input:
        unpack(label_inputs),
        grid=f"{RESULTS}/grid.json",
    output:
        root=f"{RESULTS}/labels/{{scene}}.zarr/manifest.json",
    log:
        f"{RESULTS}/logs/label/{{scene}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/label/{{scene}}.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=20,
    params:
        scene=lambda wildcards, input: (
            shlex.join(["--scene", *folders([input.scene])]) if PER_SCENE else ""
        ),
        labels=subpath(output.root, parent=True),
        options=options("label"),
    shell:
        "eopipe label --grid {input.grid:q} --labels {params.labels:q} {params.scene}"
        " {params.options} {KNOBS[label]} > {log:q} 2>&1"


rule split:
    "Chips to train, val and test by place, with a leakage audit."
    input:
        tiles=all_tiles,
        labels=all_labels,
    output:
        chips=f"{RESULTS}/split.json",
    log:
        f"{RESULTS}/logs/split.log",
    benchmark:
        f"{RESULTS}/benchmarks/split.tsv"
    conda:
        "../envs/eopipe.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, input: 10 + len(input.tiles),
    params:
        tiles=lambda wildcards, input: folders(input.tiles),
        labels=lambda wildcards, input: folders(input.labels),
        options=options("split"),
    shell:
        "eopipe split --tiles {params.tiles:q} --labels {params.labels:q} --chips {output.chips:q}"
        " {params.options} {KNOBS[split]} > {log:q} 2>&1"
