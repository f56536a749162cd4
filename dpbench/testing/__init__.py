"""The laws that the tests of every plugin inherit, shipped with dpbench so that third-party plugins inherit them too.

>>> from dpbench.testing import LearnerLaws
>>> class TestMine(LearnerLaws):
...     learner = None  # an instance of your learner

pytest collects the laws from the subclass; `dpbench check NAME` runs the same laws without pytest. A law cannot be
overridden or marked away: a subclass that tries is refused when it is defined.
"""

from dpbench.testing.datasets import DatasetLaws
from dpbench.testing.extractors import ExtractorLaws
from dpbench.testing.learners import LearnerLaws

__all__ = ["DatasetLaws", "ExtractorLaws", "LearnerLaws"]
