"""The questions that a curator answers in addition to sums, one module each."""
