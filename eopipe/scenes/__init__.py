"""Scenes as STAC Items: their bands, what the stored numbers mean, and which pixels are usable."""
