"""Claims of papers: accuracy at an epsilon, read from files with a source for every field, and accounted again."""
