"""Learners and datasets from theorems."""
