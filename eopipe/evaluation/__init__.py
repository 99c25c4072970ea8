"""Evaluation: scores of maps in the test areas, compared with baselines, with bootstrap intervals."""
