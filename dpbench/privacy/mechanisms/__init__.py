"""All questions that a curator answers beside sums, one module each."""
