"""Row functions are pure, and held to it: they remember nothing, read no other row, and fail without telling values."""
