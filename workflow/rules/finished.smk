# A finished model maps scenes: there is no split and no training. Labels, if there are some, only test the maps.
FILES |= {name: [] for name in ("chips", "fold_metrics", "onnx")}
FILES |= {} if config["label"]["source"] or config["label"]["asset"] else {"labels": [], "metrics": []}
FILES["model"], FILES["calibration"] = f"{config['model']}/manifest.json", config["calibration"] or []
FILES["tested_model"] = FILES["model"]
FILES["single"] = [f"{RESULTS}/{name}" for name in ("report.html", "map.png")]
FILES["single"] += [config["calibration"]] if config["calibration"] else []
FILES["single"] += [FILES["metrics"]] if FILES["metrics"] else []


rule describe:
    "Write a one-page report of a map by a finished model: maps, areas, inputs beside the training inputs."
    input:
        **files("model", "classes", "probabilities", "tiles", "scenes", "metrics"),
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
        **params_for("describe", folders=["model", "tiles"], optional=["scenes", "metrics"]),
    shell:
        "exec eopipe describe --model {params.model:q} --classes {input.classes:q} --probabilities"
        " {input.probabilities:q} --tiles {params.tiles:q} {params.scenes:q} {params.metrics:q} --page {output.page:q} --picture"
        " {output.picture:q} {params.options} {resources.knobs} > {log:q} 2>&1"
