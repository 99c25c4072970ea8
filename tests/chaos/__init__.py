"""Seeded chaos: kill random processes of a run, start the same command again, and compare every payload file."""
