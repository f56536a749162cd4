"""Tables, plots and comparisons of results. No board is needed.

The package is not called `dpbench.results`, because it would hide the function of that name.
"""
