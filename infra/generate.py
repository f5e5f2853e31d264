"""Writes what in infra/ and compose/ follows from the code: `make docs`; a test compares.

The permissions and streams as data, the example configurations of the bus, and the files that say seven services two
times over. What a person chooses (units, rules, the manifests of bus and agents) is written by hand, beside them.
"""

import json
import sys
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec

from fairlease.runtime import access, deployment, keys, permissions, streams
from fairlease.runtime.secret import Secret
from fairlease_schemas.subjects import SERVICES

ROOT: Final = Path(__file__).resolve().parents[1]
REPLICAS: Final = ("a", "b")
PASSWORD: Final = Secret("PASSWORD-OF-THE-ROUTES")
"""Its place in an example."""
_BY_HAND: Final = "# Written by `python infra/generate.py`; not by hand.\n"


def outputs() -> dict[str, str]:
    """Every generated file by its path below the project."""
    cell = deployment.read(ROOT / "infra/cell.toml")
    single = msgspec.structs.replace(cell, servers=(msgspec.structs.replace(cell.servers[0], name="bus"),))
    return {
        "infra/nats/accounts.conf": access.example(),
        "infra/nats/single.conf": deployment.config(single, single.servers[0], PASSWORD),
        **{f"infra/nats/{s.name}.conf": deployment.config(cell, s, PASSWORD) for s in cell.servers},
        "infra/permissions.json": _json(_permissions(cell)),
        "infra/streams.json": _json(_streams(cell)),
        "infra/kubernetes/services.yaml": _BY_HAND + "---\n".join(map(_deployment, SERVICES)),
        "compose/compose.yaml": _compose(deployment.read(ROOT / "compose/cell.toml")),
    }


def _permissions(cell: deployment.Deployment) -> dict[str, Any]:
    """Who may say and hear what, in words that need none of our code to read."""
    return {
        one.name: {
            "publish": list(access.may_publish(one)),
            "subscribe": list(access.may_subscribe(one)),
            "answers": list(one.answers),
            "reaches": [
                {"account": way.account, "subject": way.subject, "as": way.name} for way in (*one.sends, *one.hears)
            ],
        }
        for one in permissions.identities(cell.plan)
    }


def _streams(cell: deployment.Deployment) -> dict[str, Any]:
    """Each stream as it is declared, in the server's own words."""
    rows = streams.wanted(cell.subjects, cell.plan.accounts)
    return {
        name: {key: value for key, value in {**row, "num_replicas": cell.replicas}.items() if value is not None}
        for name, row in rows.items()
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _deployment(service: str) -> str:
    text = (ROOT / "infra/kubernetes/service.yaml.in").read_text(encoding="utf-8")
    return Template(text).substitute(service=service, identity=keys.service_name(service))


def _compose(cell: deployment.Deployment) -> str:
    """One box: the bus's servers, each service twice, an agent with simulated GPUs."""
    names = [server.name for server in cell.servers]
    rows = [_server(name, port) for port, name in enumerate(names, start=4222)]
    rows += [_replica(service, replica) for service in SERVICES for replica in REPLICAS]
    stores = "".join(f"  {name}-store:\n" for name in names)
    text = (ROOT / "compose/compose.yaml.in").read_text(encoding="utf-8")
    return _BY_HAND + Template(text).substitute(cell=cell.cell, url=cell.url, services="\n".join(rows), stores=stores)


def _server(name: str, published: int) -> str:
    return f"""\
  {name}:
    <<: *bus
    command: ["bus", "serve", "/etc/fairlease/{name}.conf"]
    ports: ["127.0.0.1:{published}:4222"]
    volumes:
      - "{name}-store:/var/lib/fairlease-bus"
      - "./out/{name}.conf:/etc/fairlease/{name}.conf:ro"
      - "./out/accounts.conf:/etc/fairlease/accounts.conf:ro"
"""


def _replica(service: str, replica: str) -> str:
    return f"""\
  {service}-{replica}:
    <<: *service
    command: ["serve", "{service}"]
    environment:
      <<: *cell
      FAIRLEASE_REPLICA: "{replica}"
    volumes:
      - "./out/keys/{keys.service_name(service)}.key:/run/fairlease/key:ro"
"""


def main() -> int:
    """Writes every file; with --check, only says which differ, and ends with 1."""
    found = outputs()
    stale = [
        path for path, text in found.items() if not (ROOT / path).exists() or (ROOT / path).read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path}: is not what the code says; run `make docs`" for path in stale))
        return int(bool(stale))
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(found[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
