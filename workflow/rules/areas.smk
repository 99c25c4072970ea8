# Areas from a sample that people have labelled: the config names it once it is. The crate has the labels too.


rule estimate:
    "Estimate the area of each class with its standard error from a labelled probability sample."
    input:
        **eo.named_files(config, "estimate"),
        **files("classes"),
    output:
        areas=FILES["areas"],
        page=f"{RESULTS}/areas.html",
    log:
        f"{RESULTS}/logs/estimate.log",
    benchmark:
        f"{RESULTS}/benchmarks/estimate.tsv"
    conda:
        ENVIRONMENT
    resources:
        **machine("estimate", mem_mb=1000, runtime=lambda wildcards, input: 20 + eo.volume(input.classes) // 10),
    params:
        **params_for("estimate"),
    shell:
        "exec eopipe estimate --classes {input.classes:q} --areas {output.areas:q} --page {output.page:q} {params.options}"
        " > {log:q} 2>&1"
