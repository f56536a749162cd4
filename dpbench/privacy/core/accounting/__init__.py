"""Compute epsilon from plan and sigma, and sigma from plan and budget; cross-check epsilon. Pure arithmetic."""
