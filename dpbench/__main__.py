"""`python -m dpbench` is the command `dpbench`."""

from dpbench.cli import main

if __name__ == "__main__":
    main()
