"""The researcher's journey in a real browser on the real cluster, by the portal's own processes.

Web, worker, beat and watcher run as in the demo; the Job on the node, the kubelet's registration,
the verification Pods, the quota and its refusal are Kubernetes' own doing.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.cluster.__main__ import demo_environment
from tests.cluster.node import LabNode
from tests.cluster.plugin import offers
from tests.cluster.processes import wait_until
from tests.e2e.conftest import browser_context_args, browser_type_launch_args, guard
from tests.e2e.guards import Guard
from tests.e2e.lab import served_from, sign_in

__all__ = ["browser_context_args", "browser_type_launch_args", "guard"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PODS = "/api/v1/namespaces/team-vision/pods"
QUOTA = "/api/v1/namespaces/team-vision/resourcequotas/slicedesk"
RESOURCE = "nvidia.com/mig-3g.20gb"
_SOON_MS = 15_000
_MADE_MS = 180_000


@pytest.fixture
def url(fresh_node: LabNode) -> Iterator[str]:
    environment = demo_environment(fresh_node.control_plane)
    folder = environment["SLICEDESK_STATE_DIR"]
    with served_from(folder, 1.0, "--on-cluster", environment=environment) as address:
        yield address


def test_from_the_form_to_a_running_pod_and_back(
    guard: Guard, url: str, fresh_node: LabNode
) -> None:
    page, api = guard.page, fresh_node.control_plane.api
    sign_in(page, url, "ada")
    number = ask(page, url)
    story = page.locator("#request-story")
    approve(page, url, number)
    expect(story.locator(".state").first).to_have_text("ready", timeout=_MADE_MS)
    guard.look()
    assert offers(fresh_node) == {"nvidia.com/gpu": 1, RESOURCE: 1}

    spec = yaml.safe_load(story.locator("#pod-spec").inner_text())
    say = "echo visible=$NVIDIA_VISIBLE_DEVICES; nvidia-smi -L; exec sleep 600"
    spec["spec"]["containers"][0]["command"] = ["sh", "-c", say]
    name = spec["metadata"]["name"]
    api.post(PODS, spec)
    wait_until(lambda: phase(api, name) == "Running", "the Pod runs", timeout_s=60)
    [visible] = re.findall(r"visible=(\S+)", api.text(f"{PODS}/{name}/log"))
    assert re.fullmatch(r"MIG-[0-9a-f-]{36}", visible)
    assert visible in api.text(f"{PODS}/{name}/log").split("visible=")[1].partition("\n")[2]
    expect(page.locator("main")).to_contain_text(name, timeout=_SOON_MS)

    with pytest.raises(HTTPError) as refused:
        api.post(PODS, spec | {"metadata": {**spec["metadata"], "name": f"{name}-more"}})
    assert (refused.value.code, "exceeded quota" in refused.value.read().decode()) == (403, True)

    api.delete(f"{PODS}/{name}")
    page.goto(f"{url}/requests/{number}/")
    page.get_by_role("link", name="Give back").click()
    page.get_by_role("button", name="Give the slice back").click()
    expect(story.locator(".state").first).to_have_text("ended", timeout=_SOON_MS)
    wait_until(lambda: granted(api) == "0", "the quota is gone", timeout_s=30)


def ask(page: Page, url: str) -> str:
    """Ask for a slice that has to be cut first, and return the request's number."""
    page.goto(f"{url}/requests/new/")
    page.get_by_label("GPU memory for each slice (GiB)").fill("19")
    page.get_by_label("What for", exact=True).fill("Fine-tuning a segmentation model")
    expect(page.locator("#fit-answer")).to_contain_text(
        "You can have this after a change that disturbs nobody.", timeout=_SOON_MS
    )
    page.get_by_role("button", name="Submit request").last.click()
    page.wait_for_url(re.compile(r"/requests/\d+/$"))
    return page.url.rstrip("/").rpartition("/")[2]


def approve(page: Page, url: str, number: str) -> None:
    """Approve the request as the tenant's lead."""
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        leads = context.new_page()
        sign_in(leads, url, "lei")
        leads.goto(f"{url}/inbox/")
        leads.locator(f"#request-{number}").get_by_role("button", name="Approve").click()
        expect(leads.locator("main")).to_contain_text("1 request approved.")


def phase(api: Any, name: str) -> str:  # noqa: ANN401  # JSON edge
    """Return the phase of a Pod of the tenant."""
    return str(api.get(f"{PODS}/{name}")["status"]["phase"])


def granted(api: Any) -> str:  # noqa: ANN401  # JSON edge
    """Return how many devices the tenant's quota grants now."""
    return str(api.get(QUOTA)["spec"]["hard"][f"requests.{RESOURCE}"])
