"""Compute fingerprints: numbers that components compute on fixed inputs, to tell whether two versions compute the same.

The fingerprint of a learner (`learners`) is its scores after fits on small tasks (`tasks`), with the settings of a
result. The fingerprint of an extractor (`taking`) is its version, its weights and its features of eight images. The
fingerprint of the core (`core`) is its answers to fixed questions, to the last bit. `dpbench.records.fingerprints`
stores and compares fingerprints.
"""
