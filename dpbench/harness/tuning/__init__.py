"""Choose settings with public labels, on private data (not covered by epsilon), or by private selection."""
