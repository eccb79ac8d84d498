"""How many local steps of each batch size a client takes."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.simulation.work import batch_counts


@settings(max_examples=40)
@given(
    samples=st.integers(0, 60),
    batch=st.integers(1, 25),
    length=st.one_of(
        st.fixed_dictionaries({"epochs": st.integers(1, 4)}), st.fixed_dictionaries({"steps": st.integers(1, 40)})
    ),
    drop_last=st.booleans(),
)
def test_the_steps_are_those_of_batches_that_are_dealt_one_by_one(samples, batch, length, drop_last):
    options = LocalOptions(batch=batch, drop_last=drop_last, **length)
    epoch = [min(batch, samples - first) for first in range(0, samples, batch)]
    if drop_last and len(epoch) > 1 and epoch[-1] < batch:
        epoch.pop()
    wanted = length.get("steps", length.get("epochs", 0) * len(epoch))
    dealt = Counter(epoch[step % len(epoch)] for step in range(wanted)) if epoch else {}
    assert batch_counts(options, samples) == dealt
