"""Networks, their checkpoints and augmented views, for learners and extractors. It registers nothing."""
