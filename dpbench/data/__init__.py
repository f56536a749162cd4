"""Roles, splits and the feature cache."""
