"""Building blocks for authors of learners: a private linear head, learners around it, and joint fits of several."""
