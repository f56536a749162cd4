"""Checks of a result that need no trust in its author: shape, privacy, scores, origin, and a re-run of its seeds."""
