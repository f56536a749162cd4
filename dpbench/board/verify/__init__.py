"""What a stranger can check of a result: shape, privacy, scores, origin; and a seed run again."""
