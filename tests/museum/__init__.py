"""The museum: what published code did to its epsilon, each as a small learner, and what refuses it.

An exhibit is `Honest` with one thing changed. `memory` holds row functions that remember, `neighbours` those that read
other rows, `precision` what meddles with the curator's arithmetic.
"""
