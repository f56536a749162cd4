"""Boards: frozen protocols, the results that follow them, and the published index of both."""
