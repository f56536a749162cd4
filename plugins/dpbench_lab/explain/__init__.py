"""The price of privacy, taken apart: the same run with noise, clipping, projection or too few steps lifted."""
