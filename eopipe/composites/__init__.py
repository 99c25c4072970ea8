"""Composites of scenes over time."""
