"""Make runs, from a spec to a result.

`loaded` builds the components and assigns a role to every example. `prepare` chooses settings, with `tuning` if the
spec asks for a search, and states the guarantee, which `guarantee` computes. `fit` fits and scores a seed, and `run`
makes the result.
"""
