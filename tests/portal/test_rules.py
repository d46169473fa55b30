"""Rules of the house that ruff and import-linter cannot say, each with a reviewer's sentence."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("portal", "tenants", "gpu")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_JOURNEY_LINES = 60  # a journey of a person is told in one go
_JOURNEYS = ("tests/e2e/", "tests/cluster/")
_SUBPROCESS_ALLOWED = (
    "portal/embedded/",
    "portal/demo/",
    "gpu/adapters/helm",
    "gpu/adapters/simulated/",  # plays the kubelet: it runs the containers' commands
)
_SIGNALS = {"post_save", "pre_save", "post_delete", "pre_delete", "m2m_changed"}


def sources(*packages: str) -> Iterator[Path]:
    for package in packages or PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


def trees(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sources(*packages):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def at(name: str, node: ast.AST) -> str:
    return f"{name}:{getattr(node, 'lineno', 0)}"


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{dotted(value)}.{attribute}"
        case _:
            return "?"


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, dotted(node.func)


def imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    is_docstring = ast.get_docstring(node) is not None
    return (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0


def test_files_and_functions_stay_small() -> None:
    """Past this, split by noun: nobody reads a long file to its end."""
    found = []
    for path in [*sources(), *sources("tests", "bench")]:
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MAX_FILE_LINES:
            found.append(f"{name} has {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1 - docstring_lines(node)
                limit = MAX_JOURNEY_LINES if name.startswith(_JOURNEYS) else MAX_FUNCTION_LINES
                if length > limit:
                    found.append(f"{at(name, node)} {node.name} has {length} lines")
    assert not found, "\n".join(found)


def test_nobody_asks_the_system_for_a_naive_time() -> None:
    """`django.utils.timezone.now` knows its zone; the core takes the time as an argument."""
    forbidden = {"datetime.now", "datetime.utcnow", "datetime.datetime.now", "date.today"}
    found = [
        at(name, call) for name, tree in trees() for call, what in calls(tree) if what in forbidden
    ]
    assert not found, "\n".join(found)


def test_views_and_forms_write_no_rows() -> None:
    """A view calls one service; the service owns the transaction, the audit row and the wake-up."""
    writing = {"save", "create", "update", "delete", "bulk_create", "bulk_update", "get_or_create"}
    found = []
    for name, tree in trees("gpu", "tenants"):
        if "/views" not in name and "forms" not in name:
            continue
        for call, what in calls(tree):
            *owner, verb = what.split(".")
            if verb in writing and ("objects" in owner or verb == "save"):
                found.append(at(name, call))
    assert not found, "\n".join(found)


def test_views_reach_tenants_through_the_access_function() -> None:
    """`get_tenant_for(user, slug)` is the only way in: it is where strangers get their 404."""
    found = [
        at(name, call)
        for name, tree in trees("gpu", "tenants")
        if "/views" in name or name.endswith("views.py")
        for call, what in calls(tree)
        if what.startswith(("Tenant.objects.", "Tenant._default_manager."))
    ]
    assert not found, "\n".join(found)


def test_signals_carry_no_logic() -> None:
    """The service that means it calls the next thing by name."""
    found = [
        at(name, node)
        for name, tree in trees()
        for node, what in imports(tree)
        if what.rpartition(".")[2] in _SIGNALS
    ]
    assert not found, "\n".join(found)


def test_only_named_modules_start_processes() -> None:
    """A process that hangs or dies is handled in one place each: services, demo, Helm."""
    found = [
        at(name, node)
        for name, tree in trees()
        if not name.startswith(_SUBPROCESS_ALLOWED)
        for node, what in imports(tree)
        if what.split(".")[0] == "subprocess"
    ]
    assert not found, "\n".join(found)


def test_only_adapters_import_the_kubernetes_client() -> None:
    """Importing it costs a second; callers know the port and its three words for errors."""
    found = [
        at(name, node)
        for name, tree in trees()
        if not name.startswith("gpu/adapters/")
        for node, what in imports(tree)
        if what.split(".")[0] == "kubernetes"
    ]
    assert not found, "\n".join(found)


def test_nothing_sleeps_in_a_request_or_a_worker() -> None:
    """What waits is queued again with a deadline; only supervisors and the lab may sleep."""
    allowed = (
        "portal/embedded/",
        "portal/demo/",
        "gpu/management/",
        "gpu/adapters/simulated/",
        "gpu/reconcilers/namespaces.py",  # 2 s at most, until the API server knows a new quota
    )
    found = [
        at(name, call)
        for name, tree in trees()
        if not name.startswith(allowed)
        for call, what in calls(tree)
        if what == "time.sleep"
    ]
    assert not found, "\n".join(found)


def test_logs_are_events_with_fields() -> None:
    """`operation.step_applied`, not a sentence: machines search them, people read the fields."""
    found = []
    for name, tree in trees():
        for call, what in calls(tree):
            owner, _dot, verb = what.rpartition(".")
            if owner not in {"log", "_log", "logger"} or verb not in {
                "debug",
                "info",
                "warning",
                "error",
                "exception",
            }:
                continue
            first = call.args[0] if call.args else None
            is_event = isinstance(first, ast.Constant) and re.fullmatch(
                r"[a-z0-9_]+(\.[a-z0-9_]+)+", str(first.value)
            )
            if not is_event:
                found.append(at(name, call))
    assert not found, "\n".join(found)


def test_no_module_is_called_utils() -> None:
    """A module is named by the noun it is about."""
    names = {"utils.py", "helpers.py", "constants.py", "misc.py", "common.py"}
    assert [
        str(path) for path in sources("portal", "tenants", "gpu", "tests") if path.name in names
    ] == []


def test_nothing_is_left_to_do() -> None:
    """Work that is left belongs into the tracker, not into the code."""
    mark = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    own = Path(__file__)
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [
            *sources(),
            *sources("tests", "bench"),
            *sorted((ROOT / "templates").rglob("*.html")),
        ]
        if path != own
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if mark.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (r"<script(?![^>]*\bsrc=)[^>]*>", "an inline script: the policy blocks it"),
        (r"\sstyle\s*=", "an inline style: the policy blocks it"),
        (r"<style\b", "an inline style sheet: the policy blocks it"),
        (r"\son[a-z]+\s*=", "an inline handler: the policy blocks it"),
        (r"\bhx-on", "an inline handler in htmx's clothes"),
        (r"https?://(?!127\.0\.0\.1|localhost|www\.w3\.org)", "an address of somebody else's"),
        (r"\.objects\b|\.filter\(|\.all\(", "a query: pages get what they show from a selector"),
        (r"\|\s*safe\b", "text that is not escaped"),
    ],
)
def test_templates_hold_no(pattern: str, sentence: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} {sentence}"
        for path in sorted((ROOT / "templates").rglob("*.html"))
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if re.search(pattern, line)
    ]
    assert not found, "\n".join(found)


def test_every_hx_request_works_without_javascript_and_names_its_target() -> None:
    """`href` or `method` beside every `hx-*` request, and its own `hx-target` and `hx-swap`."""
    found = []
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"<(\w+)\b[^<>]*?\bhx-(get|post)=[^<>]*>", text):
            tag = match.group(0)
            where = f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}"
            if match.group(1) == "a" and "href=" not in tag:
                found.append(f"{where} a link without href")
            if match.group(1) == "form" and "action=" not in tag and "method=" not in tag:
                found.append(f"{where} a form without method")
            if "hx-target=" not in tag or "hx-swap=" not in tag:
                found.append(f"{where} no hx-target or hx-swap of its own")
    assert not found, "\n".join(found)
