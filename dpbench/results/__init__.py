"""Results as tables and plots, and their comparison: no board is needed."""
