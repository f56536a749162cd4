"""Studies of runs. Nothing in dpbench depends on them. Each folder holds a command, its records and its pages."""
