# A finished model maps scenes: there are no labels, no split, no training and no scores.
FILES |= {name: [] for name in ("labels", "chips", "metrics", "fold_metrics", "onnx")}
FILES["model"], FILES["calibration"] = f"{config['model']}/manifest.json", config["calibration"] or []
FILES["single"] = [f"{RESULTS}/{name}" for name in ("report.html", "map.png")]
FILES["single"] += [config["calibration"]] if config["calibration"] else []


rule describe:
    "Write a one-page report of a map by a finished model: maps, areas, inputs beside those of the training."
    input:
        **files("model", "classes", "probabilities", "tiles", "scenes"),
    output:
        page=f"{RESULTS}/report.html",
        picture=f"{RESULTS}/map.png",
    log:
        f"{RESULTS}/logs/describe.log",
    benchmark:
        f"{RESULTS}/benchmarks/describe.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("describe", mem_mb=lambda wildcards, input: 2000 + len(input.tiles) // 10, runtime=30),
    params:
        **params_for("describe", folders=["model", "tiles"], optional=["scenes"]),
    shell:
        "exec eopipe describe --model {params.model:q} --classes {input.classes:q} --probabilities"
        " {input.probabilities:q} --tiles {params.tiles:q} {params.scenes:q} --page {output.page:q} --picture"
        " {output.picture:q} {params.options} {resources.knobs} > {log:q} 2>&1"
