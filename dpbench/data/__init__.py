"""Data on this machine: checked splits, cached features, copies between splits, and downloads."""
