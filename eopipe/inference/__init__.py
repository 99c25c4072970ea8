"""Inference: maps from tiles and a trained model, window by window."""
