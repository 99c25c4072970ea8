"""Scores of maps where the model never learned, beside those of simple methods."""
