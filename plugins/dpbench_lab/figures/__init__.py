"""Figures of papers as ready-made sweeps, and plots of results beside what the papers report."""
