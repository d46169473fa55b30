"""The command line: known troubles end in one sentence instead of a traceback."""

import sys
from collections.abc import Sequence

from django.core.management import execute_from_command_line
from django.db import InterfaceError, OperationalError

from portal.demo.supervisor import DemoError
from portal.embedded import EmbeddedError
from portal.env import EnvError
from portal.local import surroundings
from portal.outage import is_database_outage

BAD_SETUP = 2


def run(argv: Sequence[str]) -> int:
    """Run a management command; return 0, or 2 with one line on stderr when the set-up is bad."""
    try:
        with surroundings(argv[1:]):
            execute_from_command_line(list(argv))
    except (EnvError, EmbeddedError, DemoError) as error:
        return _refuse(str(error))
    except (OperationalError, InterfaceError) as error:
        if not is_database_outage(error) or "--traceback" in argv:
            raise
        reason = str(error).strip().split("\n")[0]
        return _refuse(f"The database does not answer ({reason}): start it or mend DATABASE_URL.")
    except KeyboardInterrupt:
        return 130
    return 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"Error: {sentence}\n")
    return BAD_SETUP
