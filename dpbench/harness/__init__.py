"""Make runs: `prepare` (everything public) and `fit` (one seed); `guarantee` states epsilon, `tuning` chooses."""
