"""The museum's plugins: privacy bugs of published code, each as a small plugin. None of them is installed.

An exhibit is `HonestLearner` with one change. `memory` holds row functions that remember rows, `neighbours` row
functions that read other rows, `forms` contributions that exceed their norm, `doors` requests for access that dpbench
does not offer, `outlets` learners that print, write or store rows, and `precision` changes to the curator's arithmetic.
`datasets`, `extractors` and `patients` hold bugs in the preparation of rows. `dpbench museum` shows and runs them.
"""
