"""Private learners, and references without privacy."""
