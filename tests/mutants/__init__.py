"""Mutation test of the core: the broken cores of the museum's list that name tests, one of which must fail on each.

Not a part of the suite. Run it after a change of the core or of its tests::

    python -m tests.mutants              # all, in twenty minutes on two cores
    python -m tests.mutants noise rows   # those whose names contain one of these words
    python -m tests.mutants --audit clip # and whether the audit rejects a run on them
"""
