"""Claims of papers: accuracies at an epsilon, read from files with a source for every field; epsilon is recomputed."""
