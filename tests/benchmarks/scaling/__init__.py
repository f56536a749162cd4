"""How cost grows and how it compares: the tables of the pages on scaling and on speed.

The page on scaling has processor seconds, which do not grow when other processes compete for the cores. The page on
speed (`ratios` and `way`) has wall-clock times, so measure these on a quiet machine. Every measurement has a process of
its own::

    python -m tests.benchmarks.scaling fits large        # these tables
    python -m tests.benchmarks.scaling --page            # all, and into the documentation; half an hour
    python -m tests.benchmarks.scaling leaderboards --results 100000
"""
