"""The museum: privacy bugs of published code and a few of our own, as exhibits small enough to read and run.

`exhibit` defines an exhibit. `strangers`, `outlets` and `preparations` run bugs in plugins (whose code is in
`exhibits`), `cores` replaces parts of `dpbench.privacy`, `accounts` understates epsilon, `audits` overstates it, and
`protocols` makes submissions that a board must refuse. `tour` lists all exhibits; `matrix` writes the detection matrix.
"""
