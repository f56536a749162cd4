"""What every room uses and none owns: files, paths, progress, phases, charts, messages.

Nothing here knows of privacy or learning.
"""
