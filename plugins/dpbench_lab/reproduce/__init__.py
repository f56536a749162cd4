"""The tables and figures of the papers, beside what runs here: what each reports, what is measured, and a verdict.

`catalogue.toml` lists them all; `catalogue` reads it, `measurements` collects what was run, `verdict` compares by a
stated rule, `rates` does so with the rate of a theorem, and `document` writes the page.
"""
