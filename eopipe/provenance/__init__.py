"""What a run tells of itself: run records, crates."""
