import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgefl.data.holdout import held_out


@given(
    originals=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    copies=st.integers(1, 4),
    share=st.floats(0.01, 0.99),
)
def test_copies_of_an_original_stay_together_and_each_class_gives_its_share(originals, copies, share):
    origin = np.repeat(np.arange(sum(originals)), copies) * 7
    labels = np.repeat(np.repeat(np.arange(len(originals)), originals), copies)
    kept, held = held_out(labels, origin, share)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert not set(origin[kept]) & set(origin[held])
    for label, count in enumerate(originals):
        out = len(np.unique(origin[held][labels[held] == label]))
        assert 0 <= out < count or count == 1
        if count >= 2 and 1 <= round(share * count) < count:
            assert out == round(share * count)


def test_without_copies_a_tenth_of_each_class_is_held_out_and_always_the_same():
    labels = np.repeat(np.arange(10), 100)
    kept, held = held_out(labels, None, 0.1)
    assert np.bincount(labels[held]).tolist() == [10] * 10
    assert held.tolist() == held_out(labels, None, 0.1)[1].tolist()
    assert len(kept) == 900
