"""The exponential mechanism: `plan` (what it costs), `question` (sensitivity and answer), `replay` (its audit)."""
