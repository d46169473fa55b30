"""The manager's overview: what is granted, to whom and of what; as a page and as CSV."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_safe

from gpu.planning.quotas import Amounts
from gpu.selectors.nodes import STALE_AFTER
from gpu.selectors.overview import Overview, Split, TenantFigures, overview
from gpu.views.amounts import gib_text, sevenths
from gpu.views.isolation import honesty_of
from gpu.views.pages import live_token, render_page, requires
from portal.http import PortalRequest
from tenants.permissions import Capability

BAR_WIDTH = 1000
_BOM = "\ufeff"
_MIB_PER_GIB = 1024
_LARGE = 100 * 100  # from 100 GiB on, hundredths tell nobody anything


class Unit(StrEnum):
    """What the bars and tiles count."""

    MEMORY = "memory"
    COMPUTE = "compute"


PARTS: dict[str, str | Promise] = {
    "granted": gettext_lazy("Granted"),
    "changing": gettext_lazy("Being made"),
    "foreign": gettext_lazy("Held without a right"),
    "closed": gettext_lazy("Out of service"),
    "unknown": gettext_lazy("Unknown"),
    "lost": gettext_lazy("Lost to the cut"),
    "free": gettext_lazy("Free"),
}
_LABELS: dict[str, str | Promise] = {**PARTS, "quota": gettext_lazy("Left of the quota")}
EXPLAINED: dict[str, str | Promise] = {
    "granted": gettext_lazy("Tenants have a right to it, whether a Pod uses it or not."),
    "changing": gettext_lazy("A GPU is being changed, or is kept for a slice that is being made."),
    "foreign": gettext_lazy("Pods hold it that no grant of ours covers."),
    "closed": gettext_lazy("Out of service, or on a node that takes no new work."),
    "unknown": gettext_lazy("On nodes that do not answer."),
    "lost": gettext_lazy("No further GPU instance can reach it beside those that are there."),
    "free": gettext_lazy("Can be granted, at once or after a GPU is cut."),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar: where it begins and how long it is, out of `BAR_WIDTH`."""

    code: str
    label: str
    amount: str
    x: int
    width: int
    explained: str = ""


@dataclass(frozen=True, slots=True)
class BarRow:
    """A line of a table with its bar; `cells` are the figures in the order of the headings."""

    label: str
    parts: tuple[Part, ...]
    cells: tuple[str, ...]
    url: str = ""

    @property
    def sentence(self) -> str:
        """Return the bar in words, for those who do not see it."""
        return ", ".join(f"{part.label} {part.amount}" for part in self.parts if part.width)


@require_safe
@requires(Capability.SEE_OVERVIEW)
def overview_page(request: PortalRequest) -> HttpResponse:
    """Show what is granted by tenant, by model and by kind."""
    unit = Unit.COMPUTE if request.GET.get("unit") == Unit.COMPUTE else Unit.MEMORY
    found = overview()
    parts = _parts(found.total, unit)
    context = {
        "unit": unit.value,
        "unit_words": _("GiB") if unit is Unit.MEMORY else _("sevenths"),
        "gpus_words": ngettext("%(gpus)d GPU", "%(gpus)d GPUs", found.gpus) % {"gpus": found.gpus},
        "found": found,
        "seen_at": found.seen_at,
        "stale_after": STALE_AFTER.total_seconds(),
        "capacity": _amount(found.total.capacity, unit),
        "total_row": BarRow(_("All GPUs"), parts, ()),
        "parts": parts,
        "granted": _amount(found.total.granted, unit),
        "granted_note": _percent_words(found.total.granted, found.total, unit),
        "free": _amount(found.total.free, unit),
        "free_note": _percent_words(found.total.free, found.total, unit),
        "tenant_rows": [_tenant_row(row, unit, _most(found, unit)) for row in found.tenants],
        "model_rows": [
            BarRow(
                row.model.name,
                _parts(row.split, unit),
                (str(row.gpus), _amount(row.split.capacity, unit), *_cells(row.split, unit)),
            )
            for row in found.models
        ],
        "kind_rows": _kind_rows(found, unit),
        "part_labels": [str(label) for label in PARTS.values()],
        "live_token": live_token(request, "overview"),
    }
    return render_page(request, "gpu/overview.html", context, fragments=("overview-figures",))


@require_safe
@requires(Capability.SEE_OVERVIEW)
def overview_csv(_request: PortalRequest, table: str) -> HttpResponse:
    """Return one of the tables as CSV, in GiB and sevenths, ready for a spreadsheet."""
    writers = {"tenants": _tenants_csv, "models": _models_csv, "kinds": _kinds_csv}
    if table not in writers:
        raise Http404(_("There is no such table."))
    day = timezone.localdate().isoformat()
    response = HttpResponse(
        _BOM,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="slicedesk-{table}-{day}.csv"'},
    )
    csv.writer(response).writerows(_safe(row) for row in writers[table](overview()))
    return response


def _amount(amounts: Amounts, unit: Unit) -> str:
    """Return a figure without its unit, which stands above all of them: 2,817 or 9.5."""
    if unit is Unit.COMPUTE:
        return sevenths(amounts.millisevenths)
    hundredths = amounts.memory_mib * 100 // _MIB_PER_GIB
    if hundredths >= _LARGE:
        return number_format(hundredths // 100, force_grouping=True)
    return number_format(Decimal(gib_text(amounts.memory_mib)), force_grouping=True)


def _percent_words(part: Amounts, total: Split, unit: Unit) -> str:
    percent = 100 * _number(part, unit) // max(1, _number(total.capacity, unit))
    return _("%(percent)d %% of the capacity") % {"percent": percent}


def _number(amounts: Amounts, unit: Unit) -> int:
    return amounts.memory_mib if unit is Unit.MEMORY else amounts.millisevenths


def _parts(split: Split, unit: Unit) -> tuple[Part, ...]:
    amounts = [(code, getattr(split, code)) for code in PARTS]
    whole = max(_number(split.capacity, unit), sum(_number(a, unit) for _code, a in amounts), 1)
    return tuple(_laid_out(((code, a) for code, a in amounts), unit, whole))


def _laid_out(amounts: Iterable[tuple[str, Amounts]], unit: Unit, whole: int) -> Iterator[Part]:
    """Yield the parts one after the other; rounding never leaves a gap between two."""
    before = 0
    for code, part in amounts:
        after = before + _number(part, unit)
        x, end = BAR_WIDTH * before // whole, BAR_WIDTH * after // whole
        yield Part(
            code, str(_LABELS[code]), _amount(part, unit), x, end - x, str(EXPLAINED.get(code, ""))
        )
        before = after


def _cells(split: Split, unit: Unit) -> tuple[str, ...]:
    return tuple(_amount(getattr(split, code), unit) for code in PARTS)


def _most(found: Overview, unit: Unit) -> int:
    return max((_number(row.limit, unit) for row in found.tenants), default=1)


def _tenant_row(row: TenantFigures, unit: Unit, most: int) -> BarRow:
    """Return a tenant's line; all bars have one scale, so that tenants can be compared."""
    rest = max(
        0, _number(row.limit, unit) - _number(row.granted, unit) - _number(row.promised, unit)
    )
    left = Amounts(rest, 0) if unit is Unit.MEMORY else Amounts(0, rest)
    amounts = (("granted", row.granted), ("changing", row.promised), ("quota", left))
    query = urlencode({"tenant": row.tenant.slug, "state": "ready"})
    return BarRow(
        label=row.tenant.name,
        parts=tuple(_laid_out(amounts, unit, max(most, 1))),
        cells=(
            str(row.slices),
            _amount(row.granted, unit),
            _amount(row.promised, unit),
            _amount(row.limit, unit),
            str(row.without_pod),
            str(row.waiting),
        ),
        url=f"{reverse('gpu:request-list')}?{query}",
    )


def _kind_rows(found: Overview, unit: Unit) -> list[BarRow]:
    whole = max(sum(_number(row.granted, unit) for row in found.kinds), 1)
    return [
        BarRow(
            label=str(honesty_of(row.isolation).title),
            parts=tuple(_laid_out((("granted", row.granted),), unit, whole)),
            cells=(str(row.slices), _amount(row.granted, unit), str(row.tenants)),
        )
        for row in found.kinds
    ]


def _tenants_csv(found: Overview) -> Iterator[list[str]]:
    yield [
        _("Tenant"),
        _("Slices"),
        _("Granted (GiB)"),
        _("Being made (GiB)"),
        _("Quota (GiB)"),
        _("Granted (sevenths)"),
        _("Being made (sevenths)"),
        _("Quota (sevenths)"),
        _("Devices without a Pod"),
        _("Open requests"),
    ]
    for row in found.tenants:
        both = (row.granted, row.promised, row.limit)
        yield [
            row.tenant.name,
            str(row.slices),
            *(gib_text(a.memory_mib) for a in both),
            *(_plain_sevenths(a) for a in both),
            str(row.without_pod),
            str(row.waiting),
        ]


def _models_csv(found: Overview) -> Iterator[list[str]]:
    columns = {"capacity": _("Capacity"), **{code: str(label) for code, label in PARTS.items()}}
    yield [
        _("Model"),
        _("GPUs"),
        *(_("%(what)s (GiB)") % {"what": label} for label in columns.values()),
        *(_("%(what)s (sevenths)") % {"what": label} for label in columns.values()),
    ]
    for row in found.models:
        amounts = [getattr(row.split, code) for code in columns]
        yield [
            row.model.name,
            str(row.gpus),
            *(gib_text(a.memory_mib) for a in amounts),
            *(_plain_sevenths(a) for a in amounts),
        ]


def _kinds_csv(found: Overview) -> Iterator[list[str]]:
    yield [_("Kind"), _("Slices"), _("Granted (GiB)"), _("Granted (sevenths)"), _("Tenants")]
    for row in found.kinds:
        yield [
            str(honesty_of(row.isolation).title),
            str(row.slices),
            gib_text(row.granted.memory_mib),
            _plain_sevenths(row.granted),
            str(row.tenants),
        ]


def _plain_sevenths(amounts: Amounts) -> str:
    return f"{amounts.millisevenths / 1000:g}"


def _safe(row: Iterable[str]) -> list[str]:
    """Keep a spreadsheet from taking a name for a formula."""
    return [f"'{cell}" if cell[:1] in {"=", "+", "-", "@", "\t", "\r"} else cell for cell in row]
