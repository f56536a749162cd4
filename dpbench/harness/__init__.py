"""Make runs: `prepare` reads public data only, `fit` fits a seed, `guarantee` states epsilon, `tuning` searches."""
