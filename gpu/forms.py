"""The request form: a wish in a researcher's own words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast, override

from django import forms
from django.db.models import Model
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gpu.models import GpuModel, Offering
from gpu.services.requests import Wish
from tenants.models import Tenant

_MIB_PER_GIB = 1024
_MOST_GIB = 1_000_000
_MOST_COUNT = 1000
_MOST_DAYS = 3650


@dataclass(frozen=True, slots=True)
class Choices:
    """What one person may choose from: own tenants, what is offered, models of the cluster."""

    tenants: Sequence[Tenant]
    offerings: Sequence[Offering]
    models: Sequence[GpuModel]


class OneOfField(forms.ChoiceField):
    """A choice among rows that are loaded already; cleans to the row, or to None."""

    def choose_from(self, rows: Mapping[str, tuple[Model, object]], *, empty: object = "") -> None:
        """Offer rows by key, each with its label; `empty` is the label of no choice at all."""
        self._rows = {key: row for key, (row, _label) in rows.items()}
        nothing = [("", empty)] if empty else []
        self.choices = [*nothing, *((key, str(label)) for key, (_row, label) in rows.items())]

    @override
    def clean(self, value: Any) -> Any:
        return self._rows.get(super().clean(value))


class RequestForm(forms.Form):
    """What is asked for: memory in GiB for each slice; isolation names the offering.

    It checks the shape alone; `gpu.services.requests` decides whether it may be asked for.
    """

    tenant = OneOfField(
        label=gettext_lazy("Tenant"),
        error_messages={
            "invalid_choice": gettext_lazy("Choose one of your own tenants."),
            "required": gettext_lazy("Choose the tenant that the slice is for."),
        },
    )
    isolation = OneOfField(
        label=gettext_lazy("Isolation"),
        widget=forms.RadioSelect,
        error_messages={
            "invalid_choice": gettext_lazy("This is not offered any more; choose another kind."),
            "required": gettext_lazy("Choose how well the slice is kept apart."),
        },
    )
    memory = forms.DecimalField(
        label=gettext_lazy("GPU memory for each slice (GiB)"),
        min_value=Decimal("0.1"),
        max_value=_MOST_GIB,
        max_digits=9,
        decimal_places=2,
        error_messages={
            "required": gettext_lazy("Say how much GPU memory each slice needs, in GiB."),
            "invalid": gettext_lazy("Write the memory as a number of GiB, such as 20 or 9.5."),
            "min_value": gettext_lazy("Ask for more than 0 GiB of memory."),
        },
    )
    count = forms.IntegerField(
        label=gettext_lazy("How many"),
        min_value=1,
        max_value=_MOST_COUNT,
        error_messages={
            "required": gettext_lazy("Say how many slices you need."),
            "invalid": gettext_lazy("Write how many slices as a whole number, such as 2."),
            "min_value": gettext_lazy("Ask for at least one slice."),
        },
    )
    days = forms.IntegerField(
        label=gettext_lazy("For how many days"),
        min_value=1,
        max_value=_MOST_DAYS,
        error_messages={
            "required": gettext_lazy("Say for how many days you need it."),
            "invalid": gettext_lazy("Write the days as a whole number, such as 3."),
            "min_value": gettext_lazy("Ask for at least one day."),
        },
    )
    gpu_model = OneOfField(
        label=gettext_lazy("GPU model"),
        required=False,
        error_messages={
            "invalid_choice": gettext_lazy("The cluster has no such model; choose another or any.")
        },
    )
    purpose = forms.CharField(
        label=gettext_lazy("What for"),
        max_length=500,
        error_messages={
            "required": gettext_lazy("Say in a few words what the slice is for."),
            "max_length": gettext_lazy("Say what it is for in at most 500 characters."),
        },
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        choices: Choices,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        """Offer the person's own tenants, what is offered, and the models that there are."""
        super().__init__(data, initial=dict(initial or {}))
        self._field("tenant").choose_from({t.slug: (t, t.name) for t in choices.tenants})
        self._field("isolation").choose_from(
            {o.isolation: (o, o.get_isolation_display()) for o in choices.offerings}
        )
        self._field("gpu_model").choose_from(
            {m.product: (m, m.name) for m in choices.models}, empty=_("any model")
        )

    @property
    def wish(self) -> Wish:
        """Return what is asked for, of a valid form."""
        data = self.cleaned_data
        return Wish(
            tenant=data["tenant"],
            offering=data["isolation"],
            memory_mib=int(data["memory"] * _MIB_PER_GIB),
            count=data["count"],
            days=data["days"],
            purpose=data.get("purpose", ""),
            gpu_model=data["gpu_model"],
        )

    def add_service_error(self, message: object, field: str) -> None:
        """Show what a service refused beside the field that it is about, else above all."""
        self.add_error(field if field in self.fields else None, str(message))

    def _field(self, name: str) -> OneOfField:
        return cast("OneOfField", self.fields[name])

    @override
    def clean(self) -> None:
        """Hold count and days to what is offered, so that the form says it before the service."""
        offering = self.cleaned_data.get("isolation")
        if offering is None:
            return
        count, days = self.cleaned_data.get("count"), self.cleaned_data.get("days")
        if count is not None and count > offering.max_count:
            self.add_error(
                "count", _("Ask for 1 to %(most)d at once.") % {"most": offering.max_count}
            )
        if days is not None and days > offering.max_days:
            self.add_error(
                "days",
                _("Choose 1 to %(most)d days; a longer need is asked for again near the end.")
                % {"most": offering.max_days},
            )


class QuestionForm(RequestForm):
    """The same wish while it is being typed: what it is for does not matter to the answer."""

    @override
    def full_clean(self) -> None:
        self.fields["purpose"].required = False
        super().full_clean()
