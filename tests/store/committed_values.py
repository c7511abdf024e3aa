"""Generated entries of manifests."""

from __future__ import annotations

from hypothesis import strategies as st

from headrace.store.logs.committed import CommittedSource, CommittedStream, KeysFile, OperatorProgress
from headrace.time import BEGINNING

instants = st.integers(BEGINNING, 2**60)
counts = st.integers(0, 99)
names = st.text(max_size=3)
sources = st.builds(CommittedSource, instants, instants, st.lists(instants).map(tuple), instants, instants)
streams = st.builds(
    CommittedStream,
    rows=counts,
    late=counts,
    keep=st.sampled_from([1.0, 0.25]),
    punctuation=instants,
    born=counts,
    arrived=st.none() | instants,
    sources=st.dictionaries(names, sources),
    groups=st.dictionaries(names, instants),
    keys=st.lists(st.builds(KeysFile, names, counts, instants, st.booleans())).map(tuple),
    retained_since=instants,
    until=counts,
)
progress = st.builds(
    OperatorProgress,
    instants,
    counts,
    counts,
    st.dictionaries(names, instants),
    st.just(BEGINNING) | instants,
    st.sampled_from(["", "the archive"]),
)
