"""Choose settings by public labels, on private data outside epsilon, or by private selection."""
