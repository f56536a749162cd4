"""Tables on the documentation's pages, made from committed results; `python -m tests.helpers.readme` writes them."""
