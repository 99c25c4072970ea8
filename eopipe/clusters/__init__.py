"""Clusters: their resources, what a run requests, and Snakemake profiles."""
