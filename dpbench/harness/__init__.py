"""Make runs: `prepare` reads public data, `fit` fits a seed, `guarantee` states epsilon, `tuning` chooses settings."""
