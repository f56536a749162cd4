"""Verification of files that state something: results, models, receipts, and records of audits, attacks and re-runs.

`files` detects the kind of a file and calls the check for this kind; `report` defines the report of every check.
"""
