"""What property tests draw: tables, valid layouts, demands."""

from collections import Counter

from hypothesis import strategies as st

from gpu.planning.catalogue import all_tables
from gpu.planning.geometry import Instance, Layout, layout_of
from gpu.planning.layouts import free_starts
from gpu.planning.plans import CurrentGpu
from gpu.planning.profiles import ProfileName
from gpu.planning.tables import GpuTable

PUBLISHED = tuple(table for table in all_tables() if table.is_published)
tables = st.sampled_from(PUBLISHED)
small_tables = st.sampled_from([t for t in PUBLISHED if t.id in {"a30-24gb", "a100-40gb"}])

profile_names = st.builds(
    ProfileName,
    st.integers(1, 99),
    st.integers(0, 9999),
    st.sampled_from(["", "+me", "-me", "+gfx", "+me.all"]),
)


@st.composite
def layouts(draw: st.DrawFn, table: GpuTable, most: int = 7) -> Layout:
    """Draw a valid layout by putting in one legal instance after the other."""
    layout: Layout = ()
    for _ in range(draw(st.integers(0, most))):
        choices = [
            Instance(profile.name, start)
            for profile in table.profiles
            for start in free_starts(table, layout, profile.name)
        ]
        if not choices:
            break
        layout = layout_of((*layout, draw(st.sampled_from(choices))))
    return layout


@st.composite
def currents(draw: st.DrawFn, table: GpuTable) -> CurrentGpu:
    """Draw what a GPU holds, some of it in use; now and then MIG is off."""
    if draw(st.integers(0, 9)) == 0:
        return CurrentGpu.off()
    layout = draw(layouts(table))
    in_use = draw(st.sets(st.sampled_from(layout))) if layout else set()
    free = [item for item in layout if item not in in_use]
    return CurrentGpu.on(free=free, in_use=in_use)


def wants(table: GpuTable, most: int = 5) -> st.SearchStrategy[Counter[str]]:
    names = st.sampled_from([profile.name for profile in table.profiles])
    return st.lists(names, max_size=most).map(Counter)
