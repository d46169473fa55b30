"""`manage.py demo`: the whole portal with a simulated lab, in one terminal."""

from argparse import ArgumentParser
from typing import override

from django.core.management.base import BaseCommand, CommandError

from gpu.management.seeding import PASSWORD, PEOPLE
from portal import env, local
from portal.demo.supervisor import Options, run


class Command(BaseCommand):
    """Start everything, play one request through, then serve until Ctrl-C."""

    help = "Runs the whole portal with a simulated lab on this machine."

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-tour", action="store_true", help="serve at once")
        parser.add_argument(
            "--on-cluster",
            action="store_true",
            help="on the cluster that KUBECONFIG names, which gets namespaces and changed GPUs",
        )
        parser.add_argument("--stop-after-tour", action="store_true", help="do not go on serving")

    @override
    def handle(self, *_arguments: object, **options: object) -> None:
        code = run(
            Options(
                state_dir=local.state_dir(),
                port=env.number("PORT", default=8000, minimum=1, maximum=65535),
                database_url=local.given_urls.get("DATABASE_URL", ""),
                redis_url=local.given_urls.get("REDIS_URL", ""),
                logins=_logins(),
                with_tour=not options["no_tour"],
                stops_after_tour=bool(options["stop_after_tour"]),
                on_cluster=bool(options["on_cluster"]),
            ),
            say=self._say,
        )
        if code:
            message = "The tour did not come to its end."
            raise CommandError(message, returncode=1)

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _logins() -> str:
    """Return one line for each person of the demo: how they sign in, and who they are."""
    lines = [
        f"  {username:<8} {first} {last}, {tenant_role or role}{f' of {slug}' if slug else ''}"
        for username, first, last, role, slug, tenant_role in PEOPLE
    ]
    return "\n".join([f"Sign in with the password {PASSWORD} as one of", *lines])
