"""What verification Pods must have seen before a node counts as shared."""

from typing import Any

import pytest

from gpu.executors.verification import Problem, problem, sharing_problem

GPU = "nvidia.com/gpu"


def rows(*uuids: str, key: str = GPU, profile: str = "") -> list[dict[str, Any]]:
    """Return evidence: one Pod for each UUID that was seen; a comma joins what one Pod saw."""
    return [
        {
            "pod": f"p{number}",
            "resource": key,
            "devices": [
                {"uuid": uuid, "profile": profile, "memory_mib": None}
                for uuid in seen.split(",")
                if uuid
            ],
        }
        for number, seen in enumerate(uuids)
    ]


def said(found: Problem | None) -> str:
    return found[0] % found[1] if found else ""


@pytest.mark.parametrize(
    ("uuids", "shares", "complaint"),
    [
        (("a", "a", "b", "b"), 2, ""),
        (("a", "b"), 1, ""),
        (("a", "b", "a"), 2, ""),
        (("a", "a", "a", "b"), 2, "Device a is seen by 3 Pods instead of 2."),
        (("a", "a", "a", "a"), 2, "the Pods saw 1 different devices instead of 2"),
        (("a", "b", "c"), 2, "the Pods saw 3 different devices instead of 2"),
        (("a", "a"), 1, "the Pods saw 1 different devices instead of 2"),
        (("a", "a,b"), 1, "sees 2 devices instead of one"),
        (("a", ""), 1, "sees 0 devices instead of one"),
        ((), 2, "the Pods saw 0 different devices instead of 2"),
    ],
)
def test_each_gpu_is_seen_by_as_many_pods_as_it_has_shares(
    uuids: tuple[str, ...], shares: int, complaint: str
) -> None:
    found = said(sharing_problem(rows(*uuids), {GPU: shares}, {GPU: 2}))
    assert complaint in found
    assert bool(complaint) == bool(found)


def test_an_instance_may_be_seen_as_often_as_its_resource_has_shares() -> None:
    key = "nvidia.com/mig-1g.10gb"
    twice = rows("m", "m", key=key, profile="1g.10gb")
    assert said(problem(twice, [], None)) == "Device m is seen by two Pods."
    assert problem(twice, [], None, {key: 2}) is None
    assert "3 Pods instead of 2" in said(problem([*twice, twice[0]], [], None, {key: 2}))
