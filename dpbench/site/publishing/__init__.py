"""Publishing a leaderboard: as a site in a folder, and as a dataset repository."""
