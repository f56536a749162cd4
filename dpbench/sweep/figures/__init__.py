"""The papers' figures as ready-made sweeps, and plots of a sweep's results beside what the papers report."""
