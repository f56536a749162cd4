"""Studies: questions that many runs answer together."""
