"""The museum is run, whole; `python -m tests.museum` writes its records and its page anew."""
