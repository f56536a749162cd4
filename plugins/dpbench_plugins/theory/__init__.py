"""Learners and data of theorems."""
