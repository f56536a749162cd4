"""Shared helpers for files, paths, settings, progress and messages. None of them depends on privacy or learning."""
