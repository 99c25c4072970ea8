"""eopipe: satellite scenes to a trained, measured, mapped and citable model."""

__version__ = "0.1.0"
