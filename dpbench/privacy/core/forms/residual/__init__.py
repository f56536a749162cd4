"""Gradient embedding perturbation: a row's part along a public basis and the residual, released from one sample.

It is a form of `Sum`, not a question of its own: `bases` defines the parts and bounds their rounding, `form` bounds the
length of a residual, `total` adds residuals up.
"""
