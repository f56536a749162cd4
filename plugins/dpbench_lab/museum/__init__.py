"""The museum: privacy bugs of published code and a few of our own, small enough to read, run and refused.

`exhibit` says what an exhibit is; `strangers` are plugins (their code lies in `exhibits`, as a stranger's would),
`cores` replace a piece of `dpbench.privacy`, `accounts` state an epsilon, `protocols` are submissions that a board must
refuse. `tour` lists all of them, and `matrix` makes the detection matrix from running them.
"""
