"""Gradient embedding perturbation (GEP): release a row's part along a public basis, and the residual, from one sample.

A residual is a form of contribution to `Sum`, not a question of its own. `bases` splits rows and bounds the rounding,
`form` bounds the norm of a residual, `total` adds residuals up.
"""
