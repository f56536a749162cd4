"""Whether features suit PILLAR: their spectrum, how low-rank classifiers on them are, and the margins that remain."""
