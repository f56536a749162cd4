"""Tables and figures of papers beside our runs: the reported numbers, the measured numbers, and a verdict.

`catalogue.toml` lists them all; `catalogue` reads it, `measurements` collects what was run, `verdict` compares by a
stated rule, `rates` does so with the rate of a theorem, and `document` writes the page.
"""
