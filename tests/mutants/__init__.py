"""Mutation test of `dpbench.privacy`: small edits, each a privacy bug, each of which some test must notice.

Not a part of the suite. Run it after a change of the core or of its tests::

    python -m tests.mutants              # all, in twenty minutes on two cores
    python -m tests.mutants noise rows   # those whose names contain one of these words
    python -m tests.mutants --audit clip # and whether the audit rejects a run on them
"""
