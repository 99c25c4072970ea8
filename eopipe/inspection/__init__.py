"""What is in a store: `eopipe tiles info|check|plot`."""
