"""The forms of a change of sharing: what is wanted, and the admin's word that it was understood."""

from collections.abc import Iterable
from typing import Any, override

from django import forms
from django.utils.translation import gettext_lazy as _

from gpu.models import Operation
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.resources import WHOLE_GPU
from gpu.planning.sharing import MAX_MPS_CLIENTS, SharingStrategy
from gpu.views.sharing_preview import ShareLine, SharingPreview

MOST_SHARES = 100
_NUMBER = {
    "invalid": _("Give a whole number of shares."),
    "min_value": _("A device has 1 share, which is the whole of it, or more."),
    "max_value": _("More than %(limit_value)s shares of one device are of no use to anybody."),
}


class SharingForm(forms.Form):
    """How the node's devices are to be shared: one strategy, a number for each resource."""

    strategy = forms.ChoiceField(
        label=_("Strategy"),
        choices=[
            (str(SharingStrategy.NONE), _("Not shared")),
            (str(SharingStrategy.TIME_SLICING), _("Time-slicing")),
            (str(SharingStrategy.MPS), "MPS"),
        ],
        error_messages={
            "required": _("Choose a strategy."),
            "invalid_choice": _("Choose one of the three strategies."),
        },
        widget=forms.RadioSelect,
    )

    def __init__(self, *args: Any, lines: Iterable[ShareLine], **kwargs: Any) -> None:  # noqa: ANN401  # handed on
        super().__init__(*args, **kwargs)
        self.lines = tuple(lines)
        for line in self.lines:
            self.fields[field_name(line.resource)] = forms.IntegerField(
                label=line.resource,
                required=False,
                min_value=1,
                max_value=MOST_SHARES,
                error_messages=_NUMBER,
            )

    @property
    def rows(self) -> list[tuple[ShareLine, forms.BoundField]]:
        """Return each resource with its field."""
        return [(line, self[field_name(line.resource)]) for line in self.lines]

    @override
    def clean(self) -> None:
        strategy = self.cleaned_data.get("strategy")
        if strategy == SharingStrategy.MPS:
            self._check_mps()
        if self.errors or not strategy:
            return
        if strategy == SharingStrategy.NONE:
            self._check_no_numbers()
        elif not self._wanted():
            self.add_error(
                "strategy",
                _("Give at least one resource 2 shares or more, or choose “Not shared”."),
            )

    @property
    def sharing(self) -> NodeSharing:
        """Return what a valid form asks for; with “Not shared”, numbers say nothing."""
        strategy = SharingStrategy(self.cleaned_data["strategy"])
        if strategy is SharingStrategy.NONE:
            return NodeSharing()
        return NodeSharing(strategy, self._wanted())

    def _wanted(self) -> dict[str, int]:
        counts = {
            line.resource: self.cleaned_data.get(field_name(line.resource)) or 1
            for line in self.lines
        }
        return {resource: count for resource, count in counts.items() if count > 1}

    def _check_no_numbers(self) -> None:
        """Refuse new numbers beside “Not shared”; those that are there now go with the sharing."""
        present = {line.resource: line.shares for line in self.lines}
        for resource, count in self._wanted().items():
            if count != present[resource]:
                self.add_error(
                    field_name(resource),
                    _("“Not shared” makes no shares: choose time-slicing or MPS for them."),
                )

    def _check_mps(self) -> None:
        for resource, count in self._wanted().items():
            if resource != WHOLE_GPU:
                self.add_error(
                    field_name(resource),
                    _("MPS shares whole GPUs only; time-slicing shares instances too."),
                )
            elif count > MAX_MPS_CLIENTS:
                self.add_error(
                    field_name(resource),
                    _("MPS serves %(most)d Pods on one GPU at most.") % {"most": MAX_MPS_CLIENTS},
                )


class SharingConfirmForm(forms.Form):
    """How the change is to be made, and that its meaning was read."""

    seen_sharing = forms.CharField(required=False, widget=forms.HiddenInput)
    seen_pods = forms.CharField(required=False, widget=forms.HiddenInput)
    pods_in_the_way = forms.ChoiceField(
        label=_("Pods in the way"),
        choices=Operation.PodsInTheWay,
        initial=Operation.PodsInTheWay.WAIT,
        required=False,
        widget=forms.RadioSelect,
    )
    node_name = forms.CharField(required=False, label=_("Name of the node"))
    trusts = forms.BooleanField(
        required=False,
        label=_("Everybody who gets a share here trusts the others"),
    )
    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("Kept in the audit trail and shown on the operation's page."),
        error_messages={"required": _("Say why, so that others can tell later.")},
    )

    def __init__(self, *args: Any, node: str, preview: SharingPreview, **kwargs: Any) -> None:  # noqa: ANN401  # handed on
        super().__init__(*args, **kwargs)
        self._node = node
        self._preview = preview

    @override
    def clean(self) -> None:
        how = self.cleaned_data.get("pods_in_the_way") or Operation.PodsInTheWay.WAIT
        self.cleaned_data["pods_in_the_way"] = how
        evicts = how == Operation.PodsInTheWay.EVICT and self._preview.pods
        if evicts and self.cleaned_data.get("node_name") != self._node:
            self.add_error(
                "node_name",
                _("Type the node's name, %(node)s, to evict Pods of others.")
                % {"node": self._node},
            )
        if self._preview.is_shared and not self.cleaned_data.get("trusts"):
            self.add_error(
                "trusts",
                _("Tick this: shares keep nobody's memory apart, so people must trust each other."),
            )


def field_name(resource: str) -> str:
    """Return the form field of a resource, such as `gpu` or `mig-1g.10gb`."""
    return resource.rpartition("/")[2]
