"""Arithmetic that gives a row the same bits at every position: integer products, and floats one operation at a time."""
