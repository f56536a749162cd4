"""`rm -r plugins/dpbench_lab` leaves a product: `python -m tests.without_lab` shows it in a copy of the tree."""
