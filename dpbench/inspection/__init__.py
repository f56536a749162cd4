"""Whether a representation suits PILLAR: its spectrum, how low-rank its classifiers are, the margins they keep."""
