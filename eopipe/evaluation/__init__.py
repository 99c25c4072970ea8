"""Evaluation: scores of maps in the test areas, compared with baselines, with confidence intervals."""
