"""Our area under the ROC curve against scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipelines.training.roc import area_under_roc


@given(st.lists(st.tuples(st.booleans(), st.integers(-4, 4)), min_size=2, max_size=60))
def test_it_is_scikit_learns_ties_included(pairs):
    labels, scores = (np.array(column, dtype=np.float32) for column in zip(*pairs, strict=True))
    expected = roc_auc_score(labels, scores) if 0 < labels.mean() < 1 else 0.5
    assert area_under_roc(labels, scores) == pytest.approx(expected)


def test_it_is_scikit_learns_on_many_numbers():
    rng = np.random.default_rng(0)
    labels = (rng.random(50_000) < 0.12).astype(np.float32)
    scores = rng.normal(size=50_000).astype(np.float32) + labels
    assert area_under_roc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-9)
