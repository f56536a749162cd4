"""Mirror images: public images have them, each its own, and private images do not."""

from __future__ import annotations

import pytest

from dpbench.harness.mirrored import load_mirrored_features
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session


@pytest.mark.usefixtures("fresh_cache")
def test_each_public_image_comes_with_its_own_mirror_image() -> None:
    spec = make_spec({"learner": "thrift", "dataset": "digits", "extractor": "pixels", "seeds": 1}, "a test")
    loaded = session().load(spec)
    mirrored = load_mirrored_features(loaded.images)
    assert mirrored is not None
    assert mirrored.view(-1, 8, 8).flip(2).equal(loaded.roles.public.x.view(-1, 8, 8))
