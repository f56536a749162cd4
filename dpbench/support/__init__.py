"""Shared helpers: files, paths, progress, phases, charts, messages. Nothing here knows about privacy or learning."""
