"""Advice before a run: the accuracy to expect from each learner on your own data. No private image is opened."""
