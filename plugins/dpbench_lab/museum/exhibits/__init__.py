"""The museum's plugins: bugs in the epsilon of published code, each as a small plugin. None of them is installed.

An exhibit is `HonestLearner` with one thing changed. `memory` holds row functions that remember, `neighbours` those
that read other rows, `forms` those that contribute what they should not, `doors` learners that want what nobody gives
them, `outlets` those that print, write or keep what they saw, and `precision` what meddles with the curator's
arithmetic. `datasets` and `extractors` hold what goes wrong before there is a row. `dpbench museum` shows and runs
them.
"""
