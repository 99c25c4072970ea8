"""Provenance of a run: run records, RO-Crates, lineage, rerun, redaction."""
