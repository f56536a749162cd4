"""The default extractor of these datasets; see `Dataset.default_extractor`."""

NETWORK = "efficientnet-lite0:size=128"
"""For photographs and scans: a small network at 128 pixels a side."""
