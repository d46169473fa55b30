"""The Cluster contract's part about lists and watches."""

import pytest

from gpu.ports import (
    CONFIG_MAP,
    EVERYTHING,
    NODE,
    POD,
    EventType,
    GoneError,
    Kind,
    Scope,
    WatchEvent,
    kind_of,
)
from tests.contracts.cluster_contract import Lab

# What a real server is asked to end after; the events of these tests come within milliseconds.
_WATCH_S = 1.0


class ClusterReadingContract:
    """Lists, selectors and watches."""

    def test_list_of_nodes(self, lab: Lab) -> None:
        listing = lab.cluster.list(NODE)
        assert lab.node in {item["metadata"]["name"] for item in listing.items}
        assert listing.resource_version

    def test_listed_objects_say_what_they_are(self, lab: Lab) -> None:
        lab.cluster.create(lab.config_map("one"))
        listing = lab.cluster.list(CONFIG_MAP, Scope(lab.namespace))
        [found] = [item for item in listing.items if item["metadata"]["name"] == "one"]
        assert kind_of(found) == CONFIG_MAP
        assert found == lab.cluster.read(CONFIG_MAP, "one", lab.namespace)

    def test_list_of_nothing(self, lab: Lab) -> None:
        assert lab.cluster.list(POD, Scope(lab.namespace)).items == ()
        assert lab.cluster.list(POD, Scope("nowhere")).items == ()

    def test_list_keeps_to_its_scope(self, lab: Lab) -> None:
        for name, colour in (("one", "red"), ("two", "blue"), ("three", "red")):
            body = lab.config_map(name)
            body["metadata"]["labels"] = {"colour": colour}
            lab.cluster.create(body)
        assert self._names(lab, Scope(lab.namespace, "colour=red")) == {"one", "three"}
        assert self._names(lab, Scope(lab.namespace, "colour!=red,colour")) == {"two"}
        assert self._names(lab, Scope(lab.namespace, "colour in (blue,green)")) == {"two"}
        assert self._names(lab, Scope(lab.namespace, "", "metadata.name=two")) == {"two"}
        everywhere = lab.cluster.list(CONFIG_MAP, EVERYTHING).items
        assert {"one", "two", "three"} <= {item["metadata"]["name"] for item in everywhere}

    def test_pods_are_listed_by_their_node(self, lab: Lab) -> None:
        scope = Scope("", "", f"spec.nodeName={lab.node}")
        assert {item["spec"]["nodeName"] for item in lab.cluster.list(POD, scope).items} <= {
            lab.node
        }
        assert lab.cluster.list(POD, Scope("", "", "spec.nodeName=nowhere")).items == ()

    def test_watch_tells_changes_in_order(self, lab: Lab) -> None:
        since = lab.cluster.list(CONFIG_MAP, Scope(lab.namespace)).resource_version
        lab.cluster.create(lab.config_map("one", colour="red"))
        lab.cluster.patch(CONFIG_MAP, "one", {"data": {"colour": "blue"}}, lab.namespace)
        lab.cluster.delete(CONFIG_MAP, "one", lab.namespace)
        events = self._watch(lab, CONFIG_MAP, Scope(lab.namespace, "", "metadata.name=one"), since)
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert [event.object["data"]["colour"] for event in events] == ["red", "blue", "blue"]
        assert all(kind_of(event.object) == CONFIG_MAP for event in events)

    def test_watch_tells_nothing_old(self, lab: Lab) -> None:
        lab.cluster.create(lab.config_map("one"))
        scope = Scope(lab.namespace, "", "metadata.name=one")
        assert self._watch(lab, CONFIG_MAP, scope, self._version(lab, scope)) == []

    def test_watch_goes_on_from_an_event(self, lab: Lab) -> None:
        scope = Scope(lab.namespace, "made=here")
        since = lab.cluster.list(CONFIG_MAP, scope).resource_version
        for name in ("one", "two"):
            body = lab.config_map(name)
            body["metadata"]["labels"] = {"made": "here"}
            lab.cluster.create(body)
        first = self._watch(lab, CONFIG_MAP, scope, since)[0].object["metadata"]
        rest = self._watch(lab, CONFIG_MAP, scope, first["resourceVersion"])
        assert [event.object["metadata"]["name"] for event in rest] == ["two"]

    def test_watch_keeps_to_its_scope(self, lab: Lab) -> None:
        since = lab.cluster.list(CONFIG_MAP, Scope(lab.namespace)).resource_version
        lab.cluster.create(lab.config_map("one"))
        body = lab.config_map("two")
        body["metadata"]["labels"] = {"colour": "red"}
        lab.cluster.create(body)
        events = self._watch(lab, CONFIG_MAP, Scope(lab.namespace, "colour=red"), since)
        assert [event.object["metadata"]["name"] for event in events] == ["two"]

    def test_watch_of_an_object_that_leaves_the_scope(self, lab: Lab) -> None:
        body = lab.config_map("one")
        body["metadata"]["labels"] = {"colour": "red"}
        since = lab.cluster.create(body)["metadata"]["resourceVersion"]
        blue = {"metadata": {"labels": {"colour": "blue"}}}
        lab.cluster.patch(CONFIG_MAP, "one", blue, lab.namespace)
        events = self._watch(lab, CONFIG_MAP, Scope(lab.namespace, "colour=red"), since)
        assert [event.type for event in events] == ["DELETED"]

    def test_watch_from_too_long_ago_is_gone(self, lab: Lab) -> None:
        lab.forget()
        with pytest.raises(GoneError):
            self._watch(lab, CONFIG_MAP, Scope(lab.namespace), "1")

    @staticmethod
    def _names(lab: Lab, scope: Scope) -> set[str]:
        return {item["metadata"]["name"] for item in lab.cluster.list(CONFIG_MAP, scope).items}

    @staticmethod
    def _version(lab: Lab, scope: Scope) -> str:
        return lab.cluster.list(CONFIG_MAP, scope).resource_version

    @staticmethod
    def _watch(lab: Lab, kind: Kind, scope: Scope, since: str) -> list[WatchEvent]:
        events = lab.cluster.watch(kind, scope, since, timeout_s=_WATCH_S)
        return [event for event in events if event.type is not EventType.BOOKMARK]
