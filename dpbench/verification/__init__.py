"""Verification of files that state something: results, models, receipts, and records of audits, attacks and re-runs.

`files` finds out what a file is and calls the check of its kind; `report` is what every check returns.
"""
