"""The audit: test a run's privacy statement on one more fit. For other libraries' loops, see `dpbench.audit.foreign`.

================== =====================================================================================================
`audit_fit`        fits a run once more and records every answer; called by `dpbench audit`
`auditing_curator` wraps the learner's curator: forwards every question, replays some, records the answers
`sensitivity`      does any row, or any unit, move a sum by more than the clip? Exact, in integers
`noise_log`        collects all noise of a fit and tests it
`spread`           is the noise as large as stated in each coordinate, column, class, block and step?
`shape`            is the noise normal?
`independence`     is the noise fresh in every step, class, coordinate, release and seed?
`samples`          are samples Poisson, for each row and for groups of rows?
`extremes`         the smallest p-value of many statistics, corrected for their number
`attack`           how well can planted examples be told apart from those that were left out?
`bounds`           lower bounds on epsilon from guesses
`figures`          computes figures from stored statistics, for a reader and for `dpbench leaderboard verify`
`released`         fits shadow models on random halves of the private data; called by `dpbench audit --released`
`released_scores`  membership tests of these models: LiRA, RMIA, and true-positive rates at fixed false-positive rates
`foreign`          tests sensitivity, noise and membership for another library's training loop
================== =====================================================================================================

An audit finds bugs; passing it proves nothing. It cannot see anything that was fitted to private data before a run.
"""
