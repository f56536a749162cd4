"""Choosing hyperparameters: by public labels alone, with private data unaccounted, or as private selection."""
