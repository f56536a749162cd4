"""Advice before a run: the accuracy to expect on your own data, and from which learner. No private image is opened."""
