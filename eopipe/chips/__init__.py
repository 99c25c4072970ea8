"""Chips: candidates, splits, leakage audit and statistics."""
