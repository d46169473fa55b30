"""Plan how one GPU comes to hold the wanted GPU instances, without touching it."""

import json
import sys
from typing import Any, override

from django.core.management.base import BaseCommand, CommandParser

from gpu.management.table_options import add_table_options, chosen_table, refuse
from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance
from gpu.planning.layouts import check_layout
from gpu.planning.notation import parse_current, parse_instances, parse_want
from gpu.planning.plans import CurrentGpu, GpuPlan, plan_gpu
from gpu.planning.refusals import NoPlan
from gpu.planning.steps import Step, action_of, instance_of, nvidia_smi_commands
from gpu.planning.tables import GpuTable

_INFEASIBLE = 1


class Command(BaseCommand):
    """`manage.py mig_plan --gpu PRODUCT --current … --want …`; needs no database, no broker.

    Ends with 0 when there is a plan, 1 when there is none, 2 for input that cannot be read.
    """

    help = "Plan how a GPU comes to hold the wanted instances besides those in use."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        add_table_options(parser)
        parser.add_argument(
            "--current",
            required=True,
            metavar="LAYOUT",
            help="such as '1g.10gb@0,2g.20gb@2!': @ start, ! in use; 'off' when MIG mode is off,"
            " empty when it is on with no instance",
        )
        parser.add_argument(
            "--want",
            required=True,
            metavar="PROFILES",
            help="what the GPU must hold besides the instances in use, such as '3g.40gb,1g.10gb'",
        )
        parser.add_argument(
            "--evict", default="", metavar="LAYOUT", help="instances in use that may be destroyed"
        )
        parser.add_argument(
            "--disable", action="store_true", help="switch MIG mode off; --want is empty then"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        table = chosen_table(options)
        plan = _plan(table, options)
        if isinstance(plan, NoPlan):
            self.stdout.write(
                json.dumps(_refusal_as_json(plan), indent=2)
                if options["json"]
                else f"Not feasible: {plan.sentence}"
            )
            sys.exit(_INFEASIBLE)
        commands = nvidia_smi_commands(plan.steps, table, gpu_index=options["index"] or 0)
        if options["json"]:
            self.stdout.write(json.dumps(_plan_as_json(plan, commands), indent=2))
        else:
            self.stdout.write("\n".join(_plan_as_text(plan, commands)))


def _plan(table: GpuTable, options: dict[str, Any]) -> GpuPlan | NoPlan:
    try:
        table.require_published()
    except PlanningError as error:
        refuse(error, "--gpu")
    current = _current(table, options["current"])
    want = _want(table, options["want"])
    try:
        evict = parse_instances(options["evict"])
        return plan_gpu(table, current, want, evict=evict, disable=options["disable"])
    except PlanningError as error:
        refuse(error, "--disable" if options["disable"] else "--evict")


def _current(table: GpuTable, text: str) -> CurrentGpu:
    try:
        current = parse_current(text)
        check_layout(table, (*current.free, *current.in_use))
    except PlanningError as error:
        refuse(error, "--current")
    return current


def _want(table: GpuTable, text: str) -> list[str]:
    try:
        return [table.profile(name).name for name in parse_want(text)]
    except PlanningError as error:
        refuse(error, "--want")


def _plan_as_json(plan: GpuPlan, commands: tuple[str, ...]) -> dict[str, Any]:
    return {
        "feasible": True,
        "reason": None,
        "steps": [_step_as_json(step) for step in plan.steps],
        "result": [
            {
                "profile": item.instance.profile,
                "start": item.instance.start,
                "kept": item.is_kept,
            }
            for item in plan.result
        ],
        "commands": list(commands),
    }


def _refusal_as_json(refusal: NoPlan) -> dict[str, Any]:
    return {
        "feasible": False,
        "reason": refusal.sentence,
        "steps": [],
        "result": [],
        "commands": [],
    }


def _step_as_json(step: Step) -> dict[str, Any]:
    instance = instance_of(step)
    return {
        "action": action_of(step),
        "profile": instance.profile if instance else None,
        "start": instance.start if instance else None,
    }


def _plan_as_text(plan: GpuPlan, commands: tuple[str, ...]) -> list[str]:
    if plan.is_empty:
        return ["Nothing to do.", *_result_as_text(plan)]
    steps = [f"  {action_of(step)} {instance_of(step) or ''}".rstrip() for step in plan.steps]
    return ["Steps:", *steps, *_result_as_text(plan), "Commands:", *(f"  {c}" for c in commands)]


def _result_as_text(plan: GpuPlan) -> list[str]:
    def line(instance: Instance, *, is_kept: bool) -> str:
        return f"  {instance}{' (kept)' if is_kept else ''}"

    lines = [line(item.instance, is_kept=item.is_kept) for item in plan.result]
    return ["Result:", *(lines or ["  no instance"])]
