"""Boards: frozen protocols, the results that follow them, and what the world sees of both."""
