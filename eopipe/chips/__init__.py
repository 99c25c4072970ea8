"""Chips, and how they are split, audited, measured and sampled."""
