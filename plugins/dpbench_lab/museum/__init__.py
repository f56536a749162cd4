"""The museum: privacy bugs of published code, and a few made for it, small enough to read, run and refused.

`exhibit` says what an exhibit is; `strangers` are plugins (their code lies in `exhibits`, as a stranger's would),
`cores` replace a piece of `dpbench.privacy`, `accounts` state an epsilon, `protocols` are what a board is asked to
take. `tour` has all of them, `matrix` what running them gave: the detection matrix.
"""
