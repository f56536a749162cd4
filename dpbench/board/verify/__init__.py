"""Checks of a result that do not rely on its author: format, privacy, scores, provenance, and re-runs of its seeds."""
