"""How cost grows: processor seconds and peak memory of fits, sweeps and leaderboards, with fitted exponents.

Processor time does not grow when other processes compete for the cores. Every measurement has a process of its own::

    python -m tests.benchmarks.scaling fits large        # these tables
    python -m tests.benchmarks.scaling --page            # all, and into the documentation; half an hour
    python -m tests.benchmarks.scaling leaderboards --results 100000
"""
