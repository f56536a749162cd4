"""What components do on fixed inputs, as numbers: by them a later version is told that computes the same.

A fingerprint of a learner (`learners`) is what it answers after fits on small tasks (`tasks`), with the settings of a
result; that of an extractor (`taking`) is its version, its weights and its features of eight images; that of the
core (`core`) is what it answers to fixed questions, to the last bit. `dpbench.records.fingerprints` keeps and compares
them.
"""
