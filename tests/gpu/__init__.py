"""What only a GPU can show, in one command of about ten minutes. It has never run on one.

Not a part of the suite, but for a rehearsal on the processor (`tests/gpu/test_script.py`)::

    python -m tests.gpu                    # everything: sums, speed, pre-training, networks
    python -m tests.gpu sums speed         # these parts
    python -m tests.gpu pretraining --full # the whole pre-training of the paper; the same command resumes it
    python -m tests.gpu --device cpu --quick

It prints a Markdown table, writes it into `--out`, and exits with 1 if something does not hold, with 2 without a GPU.
"""
