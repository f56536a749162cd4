"""Learners and datasets of theorems."""
