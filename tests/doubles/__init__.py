"""Doubles of published datasets: their formats, names, keys, shapes and counts, with images of no account.

They show that a dataset of the published size is imported, described and run, and what that costs, where its images
cannot be had. Images are all different, show their own number and a little of their class::

    python -m tests.doubles pcam /tmp/pcam                   # all of it
    python -m tests.doubles imagenet /tmp/imagenet           # 1%; --share 1 for all 1.3 million files
    python -m tests.doubles.command /tmp/pcam run --learner pillar --dataset pcam
    python -m tests.doubles.measure pcam                     # what it costs

Loaders that check a published checksum refuse a double: `tests.doubles.command` is dpbench with the checksums (and, of
a smaller double, the counts) of the double in their place. Nothing else of the loader is changed.
"""
