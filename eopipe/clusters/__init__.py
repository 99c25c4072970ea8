"""What a cluster gives, what a run asks of it, and the Snakemake profile that joins the two."""
