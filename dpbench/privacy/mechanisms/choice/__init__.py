"""The exponential mechanism: `choice_plan` (its cost), `question` and `parts` (its questions), `replay` (its audit)."""
