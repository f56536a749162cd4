"""The baselines that come with dpbench: they import its public contract alone, as a stranger's plugin would."""
