"""Catalogs of scenes: what is searched, chosen and frozen."""
