"""The museum is run, whole; `python -m tests.lab.museum` writes its records and its page anew."""
