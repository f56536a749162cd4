"""Which clipping rule? A study of four rules at equal ε: `python -m dpbench_lab.clipping.study`."""
