"""Choose hyperparameters: by public labels alone, on private data without accounting, or by private selection."""
