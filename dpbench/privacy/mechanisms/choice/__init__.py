"""The exponential mechanism: `choice_plan` (its cost), `question` and `parts` (what is asked), `replay` (its audit)."""
