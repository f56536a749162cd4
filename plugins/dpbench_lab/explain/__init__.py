"""The price of privacy in parts: the same run without noise, clipping or projection, or with more steps."""
