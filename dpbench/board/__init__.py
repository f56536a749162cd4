"""Boards: their frozen protocols, the results that follow these protocols, and the published index."""
