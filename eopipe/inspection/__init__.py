"""`eopipe tiles`: describe, check and draw stores of tiles and labels."""
