"""Compute epsilon from plan and sigma, sigma from plan and budget, and a second opinion. Pure arithmetic."""
