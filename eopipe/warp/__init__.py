"""Scenes onto grids: pixels placed or resampled, part by part."""
