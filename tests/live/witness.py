"""Who sees and may do all that a test needs: an identity beside those of the table, which no cell has by itself.

It reads every stream, hears everything, and writes what the table lets nobody write, because a story about
damage needs somebody who does it. `python -m tests.live.witness WORDS` is `fairlease WORDS` with such a guest.
"""

import functools
import sys
from pathlib import Path
from typing import Final

from fairlease.cli import main, up
from fairlease.runtime import keys
from fairlease.runtime.connection import Connection, connect
from fairlease.runtime.permissions import CORE, HOLDERS, LOG, Identity, Plan, Way, identities
from fairlease.runtime.settings import Settings
from fairlease.runtime.streams import wanted
from fairlease.runtime.supervisor import Supervisor
from fairlease_schemas.subjects import SERVICES, VERBS, Subjects

WITNESS: Final = "witness"
_VERBS: Final = (
    *("STREAM.INFO.{}", "STREAM.MSG.GET.{}", "CONSUMER.NAMES.{}"),
    *("CONSUMER.CREATE.{}.*", "CONSUMER.MSG.NEXT.{}.*", "CONSUMER.DELETE.{}.*"),
)


def witness(plan: Plan) -> Identity:
    """The guest of a cell like this."""
    subjects = Subjects(plan.cell)
    streams = wanted(subjects, plan.accounts)
    sends = [Way(LOG, subjects.log_all(), subjects.log_all()), _verb(CORE, "STREAM.NAMES")]
    for name, row in streams.items():
        holder = LOG if name == subjects.log_stream else CORE
        sends += [_verb(holder, verb.format(name)) for verb in _VERBS]
        if holder == CORE:
            sends += [Way(CORE, subject, subject) for subject in row["subjects"]]
    asked = [(keys.service_name(name), name) for name in SERVICES]
    asked += [(keys.agent_name(agent), f"agent-{host}") for agent, hosts in plan.agents for host in hosts]
    sends += [Way(account, subjects.ask(name, "*"), subjects.ask(name, "*")) for account, name in asked]
    hears = [
        Way(one.name, way.name, way.name)
        for one in identities(plan)
        for way in one.sends
        if way.account in HOLDERS and not way.name.startswith(VERBS)
    ]
    return Identity(name=WITNESS, sends=tuple(sends), hears=tuple(hears), ears=(f"fl.{plan.cell}.>",))


def _verb(account: str, verb: str) -> Way:
    return Way(account, f"$JS.API.{verb}", f"{VERBS}.{verb}")


async def as_witness(home: Path, name: str, first_connect_s: float) -> Connection:
    """A connection to the cell in this directory; it outlives restarts of the bus."""
    key = keys.read(keys.key_path(home, WITNESS))
    return await connect(Settings(state_dir=home), name, key=key, exit_on_close=False, first_connect_s=first_connect_s)


if __name__ == "__main__":
    up.Supervisor = functools.partial(Supervisor, guests=(witness,))  # type: ignore[misc,assignment]  # its name here
    sys.exit(main.main())
