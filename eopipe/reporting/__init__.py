"""What a person reads of a run: one page and one map."""
