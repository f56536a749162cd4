"""Studies of runs, which nothing in dpbench needs. Each folder holds a command, its records and its pages."""
