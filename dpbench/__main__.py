"""Run the command `dpbench` as `python -m dpbench`."""

from dpbench.main import main

if __name__ == "__main__":
    main()
