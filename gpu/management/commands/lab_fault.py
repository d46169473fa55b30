"""`manage.py lab_fault`: makes something go wrong in the simulated lab, or right again."""

from argparse import ArgumentParser
from typing import override

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpu import gateways
from gpu.adapters.simulated import SimulatedCluster, faults

_API_SERVER = "api-server"


class Command(BaseCommand):
    """Switch a fault of a node, or of the API server, on or off; a fault stays until then."""

    help = "Switches a fault of the simulated lab on or off; --list shows all, and which are on."

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("node", nargs="?", help=f"a node's name, or {_API_SERVER}")
        parser.add_argument("fault", nargs="?", help="a fault's name; --list shows them")
        parser.add_argument("state", nargs="?", choices=("on", "off"), help="on or off")
        parser.add_argument("--list", action="store_true", help="show all faults, and which are on")

    @override
    def handle(self, *_arguments: object, **options: object) -> None:
        if settings.CLUSTER != "simulated":
            message = "lab_fault works on the simulated lab only; it needs CLUSTER=simulated."
            raise CommandError(message)
        cluster = gateways.cluster()
        assert isinstance(cluster, SimulatedCluster)  # noqa: S101  # by the setting just checked
        node, fault, state = options["node"], options["fault"], options["state"]
        if options["list"]:
            if node is not None:
                message = "--list stands alone: it shows the faults of all nodes."
                raise CommandError(message)
            self._list(cluster)
        elif node is None or fault is None or state is None:
            message = "Say what to switch: lab_fault NODE FAULT on|off, or lab_fault --list."
            raise CommandError(message)
        else:
            self._switch(cluster, str(node), str(fault), is_on=state == "on")

    def _switch(self, cluster: SimulatedCluster, node: str, fault: str, *, is_on: bool) -> None:
        where = faults.EVERYWHERE if node == _API_SERVER else node
        try:
            cluster.set_fault(where, fault, on=is_on)
        except faults.FaultError as error:
            raise CommandError(str(error)) from error
        known = faults.CLUSTER_FAULTS if where == faults.EVERYWHERE else faults.NODE_FAULTS
        words = f"on: {known[fault]}" if is_on else "off"
        self.stdout.write(f"{node}: {fault} is {words}.")

    def _list(self, cluster: SimulatedCluster) -> None:
        for heading, known in (
            ("Faults of a node:", faults.NODE_FAULTS),
            (f"Faults of the {_API_SERVER}:", faults.CLUSTER_FAULTS),
        ):
            self.stdout.write(heading)
            for name, meaning in known.items():
                self.stdout.write(f"  {name:<24}{meaning}")
        self.stdout.write("Switched on:")
        switched_on = cluster.faults()
        for node, names in sorted(switched_on.items()):
            place = _API_SERVER if node == faults.EVERYWHERE else node
            self.stdout.write(f"  {place}: {', '.join(names)}")
        if not switched_on:
            self.stdout.write("  none")
