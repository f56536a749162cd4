"""Building blocks for learners: a private linear head, the base class of learners that train one, and calibration."""
