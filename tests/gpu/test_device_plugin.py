"""The device plugin's configuration: what is written, what is kept, and what is refused."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpu.adapters.simulated.plugin_config import read_config
from gpu.executors.device_plugin import (
    DEFAULT_MARK,
    Book,
    Configuration,
    ConfigurationError,
    active_entry,
    default_text,
    entry_name,
    plain_flags,
    read_configuration,
)
from gpu.planning.node_sharing import NodeSharing, changed_resources
from gpu.planning.sharing import InvalidSharingError, SharingStrategy

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
NONE, TIME_SLICING, MPS = SharingStrategy

SHARINGS = st.one_of(
    st.just(NodeSharing()),
    st.builds(
        NodeSharing,
        st.sampled_from([TIME_SLICING, MPS]),
        st.dictionaries(st.sampled_from([GPU, MIG]), st.integers(2, 48), min_size=1),
        st.booleans(),
    ),
)


@given(sharing=SHARINGS, mig=st.sampled_from(["", "none", "single", "mixed"]))
def test_what_is_written_is_what_is_read(sharing: NodeSharing, mig: str) -> None:
    written = Configuration(sharing, plain_flags(mig))
    assert read_configuration(written.to_text()) == written
    assert NodeSharing.from_json(sharing.to_json()) == sharing


@given(sharing=SHARINGS)
def test_the_plugin_reads_the_same_and_refuses_two_shares(sharing: NodeSharing) -> None:
    found = read_config(Configuration(sharing).to_text())
    assert found.strategy == sharing.strategy
    for resource in (GPU, MIG):
        assert found.shares(resource) == sharing.shares_of(resource)
        assert found.name(resource) == sharing.name_of(resource)
        if resource in sharing.replicas:
            assert found.refuses_many(found.name(resource))


def test_one_share_is_no_section_at_all() -> None:
    text = Configuration(NodeSharing(), plain_flags("mixed")).to_text()
    assert yaml.safe_load(text) == {"version": "v1", "flags": {"migStrategy": "mixed"}}


def test_flags_of_others_are_kept() -> None:
    text = "version: v1\nflags: {migStrategy: single, plugin: {passDeviceSpecs: true}}\n"
    shared = read_configuration(text).with_sharing(NodeSharing(TIME_SLICING, {GPU: 4}))
    assert yaml.safe_load(shared.to_text())["flags"] == yaml.safe_load(text)["flags"]


def test_a_name_is_its_contents_hash() -> None:
    four = Configuration(NodeSharing(TIME_SLICING, {GPU: 4})).to_text()
    eight = Configuration(NodeSharing(TIME_SLICING, {GPU: 8})).to_text()
    assert entry_name(four) == entry_name(four) != entry_name(eight)
    assert len(entry_name(four)) <= 63


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("- a", "no mapping"),
        ("version: v2", "v2"),
        ("shering: {}", "shering"),
        ("resources: {gpus: [{pattern: '*', name: big}]}", "patterns"),
        ("sharing: {timeSlicing: {renamedByDefault: true, resources: [{name: gpu}]}}", "renamed"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}", "1 replicas"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}]}}", "some"),
        (
            "sharing: {timeSlicing: {resources: [{name: a, replicas: 2}]}, mps: {resources: [1]}}",
            "both",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_configuration(text)


def test_a_default_that_is_missing_changes_nothing_for_anybody() -> None:
    only = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
    assert default_text({"default": "version: v1"}, {}) is None
    assert default_text({"ours": only}, {}) == only
    plain = default_text({"one": only, "two": only}, plain_flags("mixed"))
    assert plain is not None
    assert read_configuration(plain) == Configuration(NodeSharing(), {"migStrategy": "mixed"})
    assert default_text({}, {}) == "version: v1\n"


@pytest.mark.parametrize(
    ("names", "label", "active"),
    [
        (("default", "a"), "a", "a"),
        (("default", "a"), "", "default"),
        (("default", "a"), "gone", "default"),
        (("a",), "", "a"),
        (("a", "b"), "", None),
        ((), "", None),
    ],
)
def test_the_entry_that_a_node_has(names: tuple[str, ...], label: str, active: str | None) -> None:
    assert active_entry(dict.fromkeys(names, "version: v1"), label) == active


def test_entries_are_added_and_only_ours_that_are_unused_go() -> None:
    used, unused = entry_name("used"), entry_name("unused")
    data = {"default": "theirs", "ts-4": "theirs", used: "used", unused: "unused"}
    book = Book("configs", "plugin", data, version="7")
    body = book.with_entry("new", in_use={used, "ts-4"}, default=None)
    assert body["data"] == {used: "used", entry_name("new"): "new"}
    assert body["metadata"] == {"name": "configs", "namespace": "plugin", "resourceVersion": "7"}


def test_a_default_of_ours_stays_ours_until_somebody_edits_it() -> None:
    first = Book("configs", "plugin").with_entry("new", in_use=(), default="plain")
    assert first["data"]["default"] == "plain"
    assert "resourceVersion" not in first["metadata"]
    mark = first["metadata"]["annotations"][DEFAULT_MARK]
    ours = Book("configs", "plugin", first["data"], "8", mark)
    assert ours.with_entry("more", in_use=(), default=None)["data"]["default"] == "plain"
    edited = Book("configs", "plugin", {**first["data"], "default": "edited"}, "9", mark)
    assert "default" not in edited.with_entry("more", in_use=(), default=None)["data"]


def test_counts_by_key() -> None:
    sharing = NodeSharing(TIME_SLICING, {GPU: 4}, is_renamed=True)
    assert sharing.advertised({GPU: 2, MIG: 3}) == {f"{GPU}.shared": 8, MIG: 3}
    assert NodeSharing().advertised({GPU: 2}) == {GPU: 2}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (NodeSharing(), NodeSharing(), set()),
        (NodeSharing(), NodeSharing(TIME_SLICING, {GPU: 4}), {GPU}),
        (NodeSharing(TIME_SLICING, {GPU: 4}), NodeSharing(MPS, {GPU: 4}), {GPU}),
        (NodeSharing(TIME_SLICING, {GPU: 4}), NodeSharing(TIME_SLICING, {GPU: 4, MIG: 2}), {MIG}),
        (
            NodeSharing(TIME_SLICING, {GPU: 4}),
            NodeSharing(TIME_SLICING, {GPU: 4}, is_renamed=True),
            {GPU},
        ),
        (NodeSharing(), NodeSharing(TIME_SLICING, {"nvidia.com/mig-9g.9gb": 4}), set()),
    ],
)
def test_what_a_change_touches(before: NodeSharing, after: NodeSharing, changed: set[str]) -> None:
    assert changed_resources(before, after, {GPU: 2, MIG: 3}) == changed


@pytest.mark.parametrize(
    "sharing",
    [
        NodeSharing(NONE, {GPU: 2}),
        NodeSharing(NONE, is_renamed=True),
        NodeSharing(TIME_SLICING),
        NodeSharing(TIME_SLICING, {GPU: 1}),
        NodeSharing(MPS, {MIG: 2}),
        NodeSharing(MPS, {GPU: 49}),
        NodeSharing(TIME_SLICING, {"cpu": 2}),
    ],
)
def test_what_the_plugin_would_refuse_is_refused(sharing: NodeSharing) -> None:
    with pytest.raises(InvalidSharingError):
        sharing.check()
    with pytest.raises(InvalidSharingError):
        NodeSharing.from_json({"strategy": "magic"})
