"""The audit: what a run states about privacy, held against one more run of it. For other code: `dpbench.audit.foreign`.

=============== =====================================================================================================
`run`           one more fit through the one constructor, with a witness; what `dpbench audit` calls
`listening`     stands between the learner and its curator, and hands every question to the three parts
`sensitivity`   does any row move a sum by more than the clip? Exact, in integers
`noise`         is what was added to the sums normal, and as large as stated?
`independence`  is it fresh in every step, class, coordinate, release and seed? Are samples Poisson?
`attack`        how well can planted examples be told apart from those that were left out?
`bounds`        what guesses say about epsilon
`figures`       numbers from stored statistics, for a reader and for `dpbench leaderboard verify`
`foreign`       the same three questions put to another library's training loop
=============== =====================================================================================================

An audit finds bugs; it confirms nothing. It is blind to what was fitted to private data before a run.
"""
