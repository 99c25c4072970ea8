"""What a run will fetch, make and need, told before anything is downloaded."""
