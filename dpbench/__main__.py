"""`python -m dpbench` is the command `dpbench`."""

from dpbench.main import main

if __name__ == "__main__":
    main()
