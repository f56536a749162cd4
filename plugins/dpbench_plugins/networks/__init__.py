"""Networks, their checkpoints and augmented views, for learners and extractors. Registers no plugins."""
