rule predict:
    "Map classes and their probabilities, as cloud-optimised GeoTIFFs."
    input:
        **files("model", "finished_parts"),
        tiles=tiles_of_map,
        calibration=FILES["calibration_of_map"],
    output:
        classes=f"{RESULTS}/maps/{{map}}/classes.tif",
        probabilities=f"{RESULTS}/maps/{{map}}/probabilities.tif",
    log:
        f"{RESULTS}/logs/predict/{{map}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/{{map}}.tsv"
    conda:
        ENVIRONMENT
    threads: config["predict"]["threads"] or 4
    resources:
        **machine("predict", mem_mb=3000, runtime=eo.minutes_of_map(config), disk_mb=eo.disk_of_map),
    params:
        **params_for("predict", folders=["model", "tiles"], optional=["calibration", "finished_parts", "chips"]),
    shell:
        "exec eopipe predict --model {params.model:q} --tiles {params.tiles:q} {params.calibration:q} {params.options}"
        " {params.finished_parts:q} {params.chips:q} --classes {output.classes:q} --probabilities {output.probabilities:q}"
        " {resources.knobs} > {log:q} 2>&1"


share_requests(workflow, {"predict_part": "predict"})


use rule predict as predict_part with:
    input:
        **files("model"),
        tiles=tiles_of_map,
        calibration=FILES["calibration_of_map"],
    output:
        classes=f"{RESULTS}/maps/{{map}}/parts/{{part}}/classes.tif",
        probabilities=f"{RESULTS}/maps/{{map}}/parts/{{part}}/probabilities.tif",
    log:
        f"{RESULTS}/logs/predict/{{map}}-{{part}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/predict/{{map}}-{{part}}.tsv"


OF_REPORT = ("metrics", "chips", "labels", "scenes", "fold_metrics", "areas")


rule report:
    "Write a one-page report: verdict, maps, scores or areas, data, provenance."
    input:
        **files("model", "classes", "probabilities", "tiles", *OF_REPORT),
    output:
        **REPORT_FILES,
        page=f"{RESULTS}/report.html",
        picture=f"{RESULTS}/map.png",
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("report", mem_mb=lambda wildcards, input: 2000 + len(input.tiles) // 10, runtime=30),
    params:
        **params_for("report", folders=["model", "tiles"], optional=OF_REPORT, outputs=REPORT_FILES),
    shell:
        "exec eopipe report --model {params.model:q} --classes {input.classes:q} --probabilities {input.probabilities:q}"
        " --tiles {params.tiles:q} {params.metrics:q} {params.chips:q} {params.labels:q} {params.scenes:q}"
        " {params.fold_metrics:q} {params.areas:q} --page {output.page:q} --picture {output.picture:q} {params.outputs:q} {params.options}"
        " {resources.knobs} > {log:q} 2>&1"


rule products:
    "Make polygons, a QGIS style, the entropy and the areas of zones from the maps."
    input:
        **eo.named_files(config, "products"),
        **files("classes", "probabilities"),
    output:
        root=FILES["products"],
    log:
        f"{RESULTS}/logs/products.log",
    benchmark:
        f"{RESULTS}/benchmarks/products.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("products", mem_mb=lambda wildcards, input: 2000 + 4 * eo.volume(input.probabilities), runtime=60),
    params:
        **params_for("products"),
        products=subpath(output.root, parent=True),
    shell:
        "exec eopipe products --classes {input.classes:q} --probabilities {input.probabilities:q} --products"
        " {params.products:q} {params.options} > {log:q} 2>&1"


rule catalog:
    "Export model, maps and tiles as a static STAC catalog that a later run can search."
    input:
        **files("model", "classes", "probabilities", "tiles", "scenes", "metrics", "onnx", "areas"),
    output:
        root=f"{RESULTS}/catalog/manifest.json",
    log:
        f"{RESULTS}/logs/catalog.log",
    benchmark:
        f"{RESULTS}/benchmarks/catalog.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("catalog", mem_mb=1000, runtime=30),
    params:
        **params_for("catalog", folders=["model", "tiles"], optional=["scenes", "metrics", "onnx", "areas"]),
        catalog=subpath(output.root, parent=True),
    shell:
        "exec eopipe catalog --model {params.model:q} --classes {input.classes:q} --probabilities"
        " {input.probabilities:q} --tiles {params.tiles:q} {params.scenes:q} {params.metrics:q} {params.onnx:q}"
        " {params.areas:q} --catalog {params.catalog:q} {params.options} > {log:q} 2>&1"
