"""Results as tables and plots, and their comparison: no board is needed.

Not `dpbench.results`: that is a function, which the name of a package would hide.
"""
