"""For authors of learners: a private linear head, the learners built around one, and several fitted at once."""
