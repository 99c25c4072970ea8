"""What the jobs of a run asked for and used, and the formulas that follow from it."""
