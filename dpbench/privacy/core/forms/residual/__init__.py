"""Gradient embedding perturbation: a row's part along a public basis and the residual, released from one sample.

It is a form of `Sum` and no question of its own: `bases` says what the parts are and what rounding may add, `form` how
long a residual is, `total` how residuals are added up.
"""
