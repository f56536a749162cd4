"""Studies of runs, which nothing in dpbench needs: each folder is a command, its records and its pages."""
