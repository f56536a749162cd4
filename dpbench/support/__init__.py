"""Shared helpers for files, paths, progress, charts and messages; none depends on privacy or learning."""
