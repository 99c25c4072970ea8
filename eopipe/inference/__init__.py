"""Predict a map from tiles with a trained model."""
