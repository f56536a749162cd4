"""Arithmetic whose results are the same bits wherever a row stands: integer products, and floats one step at a time."""
