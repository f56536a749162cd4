"""The audit: test a run's privacy statement on one more fit. For other libraries' loops, see `dpbench.audit.foreign`.

================== =====================================================================================================
`audit_fit`        one more fit through the one constructor, with a witness; what `dpbench audit` calls
`auditing_curator` stands between the learner and its curator, and passes every question to the three parts
`sensitivity`      does any row, or any unit, move a sum by more than the clip? Exact, in integers
`noise_log`        all noise of a fit, and the tests of it
`spread`           is the noise as large as stated in each coordinate, column, class, block and step?
`shape`            is the noise normal?
`independence`     is the noise fresh in every step, class, coordinate, release and seed?
`samples`          are samples Poisson, for each row and for groups of rows?
`extremes`         the most surprising of many statistics, corrected for how many there are
`attack`           how well can planted examples be told apart from those that were left out?
`bounds`           lower bounds on epsilon from guesses
`figures`          numbers from stored statistics, for a reader and for `dpbench leaderboard verify`
`released`         fits on random halves of the private data; what `dpbench audit --released` calls
`released_scores`  membership tests of such models: LiRA, RMIA, and true positives at a rate of false positives
`foreign`          the same three questions put to another library's training loop
================== =====================================================================================================

An audit finds bugs; passing it proves nothing. It cannot see anything that was fitted to private data before a run.
"""
