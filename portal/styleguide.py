"""The style guide: every part of the design system with realistic data, while DEBUG is on."""

from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_not_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from gpu.glyphs import GlyphGpu, Kind, Segment, SegmentState

_IN_USE, _IDLE, _FREE = (
    SegmentState.IN_USE,
    SegmentState.GRANTED_IDLE,
    SegmentState.FREE_INSTANCE,
)
_VISION = ("Team Vision", 1)
_NLP = ("Natural Language Processing", 6)
_BIO = ("Bioinformatics and Structural Biology", 4)
_AUDIO = ("音频实验室", 9)

_POD_SPEC = """\
apiVersion: v1
kind: Pod
metadata:
  name: my-training
  namespace: team-vision
  labels:
    slicedesk.io/allocation: "118"
spec:
  nodeSelector:
    nvidia.com/gpu.product: NVIDIA-H200
  containers:
    - name: main
      image: nvidia/cuda:13.0.1-base-ubuntu24.04
      command: ["nvidia-smi", "-L"]
      resources:
        limits:
          nvidia.com/mig-3g.71gb: 1
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the sample timeline, with the names that the partial reads."""

    label: str
    outcome: str
    duration: str = ""
    message: str = ""
    commands: tuple[str, ...] = ()
    time_left: str = ""
    is_late: bool = False


class SampleForm(forms.Form):
    """One field of each kind, with an error."""

    memory = forms.IntegerField(label="GPU memory", help_text="As much as your job really needs.")
    tenant = forms.ChoiceField(label="Tenant", choices=[("v", "Team Vision"), ("n", "NLP")])
    purpose = forms.CharField(label="What for", widget=forms.Textarea(attrs={"rows": 3}))
    mail = forms.BooleanField(label="Mail me when it is ready", required=False)


class SampleFilter(forms.Form):
    """A filter bar as lists have it."""

    model = forms.ChoiceField(
        label="Model", required=False, choices=[("", "all"), ("h", "NVIDIA H200")]
    )
    node = forms.CharField(label="Node", required=False)
    state = forms.ChoiceField(label="State", required=False, choices=[("", "all")])


@require_safe
@login_not_required
def styleguide(request: HttpRequest) -> HttpResponse:
    """Show everything; needs no database."""
    now = timezone.now()
    form = SampleForm({"memory": "900", "tenant": "v", "purpose": ""})
    form.add_error("memory", "The largest slice has 141 GiB: ask for 141 or less.")
    context = {
        "user": SimpleNamespace(is_authenticated=True, display_name="Li Wei (李伟)"),
        "nav": _navigation(),
        "broken_parts": (),
        "is_simulated": True,
        "seen_at": now - timedelta(seconds=12),
        "glyphs": _glyphs(),
        "map_rows": [(f"gpu-{number:02}", _glyphs() * 2) for number in range(1, 4)],
        "editor": _glyphs()[0],
        "palette": range(12),
        "steps": _steps(),
        "form": form,
        "filter_form": SampleFilter(),
        "page": Paginator(range(212), 25).get_page(3),
        "pod_spec": _POD_SPEC,
        "tones": [
            ("good", "ready"),
            ("busy", "being made"),
            ("wait", "waiting for approval"),
            ("warn", "ending soon"),
            ("bad", "needs an operator"),
            ("idle", "waiting for room"),
            ("off", "ended"),
        ],
        "damage": ["vision/train-7f on 3g.71gb@0", "vision/eval-2 on 1g.18gb@6"],
        "facts": [
            ("Namespace", "team-vision"),
            ("Resource", "nvidia.com/mig-3g.71gb"),
            ("Ends", now + timedelta(days=2)),
        ],
    }
    return render(request, "styleguide.html", context)


def _navigation() -> dict[str, Any]:
    def item(label: str, icon: str, count: int = 0) -> dict[str, Any]:
        return {"label": label, "icon": icon, "count": count, "url": f"#{icon}"}

    first = [
        item("Home", "home"),
        item("Inbox", "inbox", 3),
        item("Request a slice", "plus"),
        item("Requests", "list"),
        item("Offerings", "box"),
    ]
    cluster = [item("GPUs", "cpu"), item("Nodes", "server-2"), item("Operations", "history")]
    reports = [item("Overview", "layout-dashboard"), item("Audit", "layout-list")]
    return {
        "role": "admin",
        "current": cluster[0],
        # A dict's own `items` would win in a template, so groups are objects.
        "groups": [
            SimpleNamespace(title="", items=first),
            SimpleNamespace(title="Cluster", items=cluster),
            SimpleNamespace(title="Reports", items=reports),
        ],
    }


def _held(start: int, size: int, profile: str, tenant: tuple[str, int], pod: str = "") -> Segment:
    state = _IN_USE if pod else _IDLE
    memory = f"{size * 17.5:.1f} GiB"
    return Segment(start, size, state, profile, tenant[0], tenant[1], memory, pod)


def _share(number: int, tenant: tuple[str, int] | None = None) -> Segment:
    if tenant is None:
        return Segment(number, 1, _FREE)
    return Segment(number, 1, _IN_USE, "", tenant[0], tenant[1], "", "jobs/run-1")


def _glyphs() -> tuple[GlyphGpu, ...]:
    h200 = (
        _held(0, 4, "3g.71gb", _VISION, "vision/train-7f"),
        _held(4, 2, "2g.35gb", _NLP),
        Segment(6, 1, _FREE, "1g.18gb", memory="16.0 GiB"),
        Segment(7, 1, SegmentState.UNCUT),
    )
    sevens = (
        *(_held(i, 1, "1g.10gb", (_VISION, _NLP, _BIO, _AUDIO)[i % 4], "a/b") for i in range(6)),
        Segment(6, 1, _FREE, "1g.10gb"),
        Segment(7, 1, SegmentState.UNREACHABLE, note="seven 1g leave it uncovered"),
    )
    changing = (
        _held(0, 4, "3g.40gb", _BIO, "bio/fold-1"),
        Segment(4, 4, SegmentState.CHANGING, note="applying"),
    )
    return (
        GlyphGpu("H200 · 0", Kind.MIG, 8, h200),
        GlyphGpu("A100-SXM4-80GB · 1", Kind.MIG, 8, sevens),
        GlyphGpu("H100 80GB HBM3 · 2", Kind.MIG, 8, changing, change_words="applying"),
        GlyphGpu("A100-PCIE-40GB · 4", Kind.MIG, 8, h200, stale_words="3 h"),
        *_other_glyphs(),
    )


def _other_glyphs() -> tuple[GlyphGpu, ...]:
    shares = (_share(0, _VISION), _share(1, _NLP), _share(2, _AUDIO), _share(3))
    whole = (Segment(0, 1, _IN_USE, "", _AUDIO[0], _AUDIO[1], "24 GiB", "audio/asr-0"),)
    half = (
        Segment(0, 2, SegmentState.UNKNOWN, "2g.48gb", note="the cluster does not say"),
        _held(2, 1, "1g.24gb", _NLP, "nlp/serve"),
        Segment(3, 1, SegmentState.UNCUT),
    )
    free = (Segment(0, 1, _FREE, memory="80 GiB"),)
    return (
        GlyphGpu(
            "L40S · 2",
            Kind.SHARES,
            4,
            shares,
            is_mig_capable=False,
            sharing_words="time-slicing",
            isolation_words="memory not isolated",
        ),
        GlyphGpu("GeForce RTX 4090 · 0", Kind.WHOLE, 1, whole, is_mig_capable=False),
        GlyphGpu("RTX PRO 6000 · 3", Kind.MIG, 4, half, is_in_service=False, service_note="ECC"),
        GlyphGpu("H100 80GB HBM3 · 5", Kind.WHOLE, 1, free),
    )


def _steps() -> tuple[Step, ...]:
    create = ("chroot /host nvidia-smi mig -i 0 -cgi 9:4 -C",)
    return (
        Step("approved", "done", "2 min 10 s", "by Zhang Min (张敏)"),
        Step("draining", "done", "41 s", "Waited for vision/eval-2 to end."),
        Step("applying", "failed", "8 s", "The driver refused: insufficient resources.", create),
        Step("verifying", "running", "12 s", "1 of 2 devices seen.", time_left="4 min 48 s"),
        Step("uncordoning", "to_come"),
        Step("done", "to_come"),
    )
