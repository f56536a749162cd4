"""What the shell says, kept as files: help texts, refusals and the commands that dpbench prints.

After a change that is meant, write them again with `python -m tests.golden`; the diff of the files is what users see.
"""
