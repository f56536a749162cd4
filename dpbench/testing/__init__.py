"""Laws: tests that the test suite of every plugin inherits, including the suites of third-party plugins.

>>> from dpbench.testing import LearnerLaws
>>> class TestMine(LearnerLaws):
...     learner = None  # an instance of your learner

pytest collects the laws from the subclass; `dpbench check NAME` runs the same laws without pytest. A subclass that
overrides or skips a law raises an error when it is defined.
"""

from dpbench.testing.datasets import DatasetLaws
from dpbench.testing.extractors import ExtractorLaws
from dpbench.testing.learners import LearnerLaws

__all__ = ["DatasetLaws", "ExtractorLaws", "LearnerLaws"]
