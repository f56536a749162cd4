"""Check that row functions are pure: they remember nothing, read no other row, and fail without revealing values."""
