"""A run from spec to result: roles, the guarantee, the fit, the scores; and how settings are chosen."""
