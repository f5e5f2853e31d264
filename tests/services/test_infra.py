"""What infra/ and compose/ say: that it is what the code says, what its readers take, and closed as far as it goes.

With what only a system brings (promtool, systemd): tests/peers/test_infra.py.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from fairlease.runtime import bus_server, deployment, keys
from fairlease_schemas.subjects import SERVICES
from tests.house.tree import ROOT

INFRA, COMPOSE = ROOT / "infra", ROOT / "compose"
MANIFESTS = ("bus", "services", "agent", "network")


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, INFRA / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _yaml(path: Path) -> list[Any]:
    return list(YAML(typ="safe", pure=True).load_all(path.read_text()))


def _objects() -> Iterator[dict[str, Any]]:
    for name in MANIFESTS:
        yield from _yaml(INFRA / f"kubernetes/{name}.yaml")


def _pods() -> dict[str, dict[str, Any]]:
    """The pod of each workload by its name."""
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in _objects() if "template" in o.get("spec", {})}


def _problems(found: dict[str, Any]) -> list[str]:
    """What Kubernetes 1.35 would not take of an object, unknown fields included."""
    known = json.loads((ROOT / "tests/data/kubernetes/v1.35-strict.json").read_bytes())
    schema = {**known["kinds"][found["kind"]], "definitions": known["definitions"]}
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(found)]


def _compose_problems(found: dict[str, Any]) -> list[str]:
    schema = json.loads((ROOT / "tests/data/compose/compose-spec.json").read_bytes())
    return [error.message for error in jsonschema.Draft201909Validator(schema).iter_errors(found)]


def _unit(name: str) -> dict[str, list[str]]:
    lines = (INFRA / "systemd" / name).read_text().splitlines()
    found: dict[str, list[str]] = {}
    for key, equals, value in (line.partition("=") for line in lines if not line.startswith(("#", "["))):
        if equals:
            found.setdefault(key, []).append(value)
    return found


# what follows from the code -------------------------------------------------------------------------
@pytest.mark.parametrize("path", sorted(_script("generate").outputs()))
def test_what_follows_from_the_code_is_what_the_code_says(path: str) -> None:
    assert (ROOT / path).read_text() == _script("generate").outputs()[path], "run `make docs`"


@pytest.mark.parametrize("name", ["single", "bus-1", "bus-2", "bus-3"])
def test_the_server_takes_the_configurations_that_are_shown(name: str, tmp_path: Path) -> None:
    accounts = (INFRA / "nats/accounts.conf").read_text()
    public = {key: keys.make(tmp_path, key).public() for key in re.findall(r"nkey: \$(\w+)", accounts)}
    conf = (INFRA / f"nats/{name}.conf").read_text().replace("/var/lib/fairlease-bus", str(tmp_path / "store"))
    sealed = re.compile(r"^ *tls \{\n(?:.*\n)*? *\}\n", re.MULTILINE)
    assert len(sealed.findall(conf)) == (1 if name == "single" else 2)
    (tmp_path / "accounts.conf").write_text(accounts)
    (tmp_path / "bus.conf").write_text(sealed.sub("", conf))  # the files it names are on no machine of ours
    said = subprocess.run(
        [str(bus_server.program()), "-t", "-c", str(tmp_path / "bus.conf")],
        env={**os.environ, **public},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("path", ["infra/cell.toml", "infra/kubernetes/cell.toml", "compose/cell.toml"])
def test_the_cells_that_are_shown_are_cells(path: str) -> None:
    assert deployment.read(ROOT / path).replicas == 3


# Kubernetes -----------------------------------------------------------------------------------------
def test_kubernetes_takes_every_manifest_and_would_not_take_a_slip() -> None:
    found = list(_objects())
    assert {o["metadata"]["name"]: _problems(o) for o in found if _problems(o)} == {}
    slip = next(o for o in found if o["kind"] == "Deployment")
    slip["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert len(_problems(slip)) == 1


def test_each_service_runs_twice_with_the_key_of_its_own_and_no_other() -> None:
    deployments = [o for o in _objects() if o["kind"] == "Deployment"]
    assert [o["metadata"]["name"] for o in deployments] == [f"fairlease-{name}" for name in SERVICES]
    for name, found in zip(SERVICES, deployments, strict=True):
        pod = found["spec"]["template"]["spec"]
        secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        assert found["spec"]["replicas"] == 2
        assert pod["containers"][0]["args"] == ["serve", name]
        assert secrets == [f"fairlease-key-service-{name}", "fairlease-ca"]


def test_nothing_but_the_agent_is_root_and_nothing_is_a_secret_in_the_open() -> None:
    assert not [o for o in _objects() if o["kind"] == "Secret"]
    for name, pod in _pods().items():
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False, name
        if name == "fairlease-agent":
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


def test_whoever_serves_is_looked_at_by_the_kubelet_and_has_a_bound() -> None:
    for name, pod in _pods().items():
        (container,) = pod["containers"]
        assert name == "fairlease-declare" or {"livenessProbe", "readinessProbe"} <= container.keys(), name
        assert name == "fairlease-agent" or container["resources"]["limits"]["memory"], name


def test_every_volume_that_is_mounted_is_there_and_every_client_of_the_bus_may_reach_it() -> None:
    for found in _objects():
        if "template" not in found.get("spec", {}):
            continue
        template = found["spec"]["template"]
        there = {v["name"] for v in template["spec"]["volumes"]}
        there |= {claim["metadata"]["name"] for claim in found["spec"].get("volumeClaimTemplates", ())}
        assert {m["name"] for m in template["spec"]["containers"][0]["volumeMounts"]} == there
        is_bus = found["metadata"]["name"] == "fairlease-bus"
        assert is_bus or template["metadata"]["labels"]["fairlease.dev/bus-client"] == "true"


def test_pods_are_told_the_bus_that_the_cell_has() -> None:
    cell = deployment.read(INFRA / "kubernetes/cell.toml")
    (kustomization,) = _yaml(INFRA / "kubernetes/kustomization.yaml")
    told = next(made for made in kustomization["configMapGenerator"] if made["name"] == "fairlease-cell")
    assert told["literals"] == [f"FAIRLEASE_CELL={cell.cell}", f"FAIRLEASE_URL={cell.url}"]
    assert kustomization["resources"] == [f"{name}.yaml" for name in MANIFESTS]


# compose --------------------------------------------------------------------------------------------
def test_compose_takes_the_box_and_would_not_take_a_slip() -> None:
    (found,) = _yaml(COMPOSE / "compose.yaml")
    assert _compose_problems(found) == []
    found["services"]["bus-1"]["comand"] = []
    assert len(_compose_problems(found)) == 1


def test_the_box_has_three_servers_and_each_service_twice_with_the_key_of_its_own() -> None:
    (found,) = _yaml(COMPOSE / "compose.yaml")
    cell = deployment.read(COMPOSE / "cell.toml")
    servers, replicas = [s.name for s in cell.servers], [f"{name}-{r}" for name in SERVICES for r in "ab"]
    assert list(found["services"]) == [*servers, *replicas, "declare", "agent"]
    for name in replicas:
        service = name.rpartition("-")[0]
        assert found["services"][name]["volumes"] == [f"./out/keys/service-{service}.key:/run/fairlease/key:ro"]
        assert found["services"][name]["environment"]["FAIRLEASE_REPLICA"] == name[-1]
        told = {key: found["services"][name]["environment"][f"FAIRLEASE_{key}"] for key in ("CELL", "URL")}
        assert told == {"CELL": cell.cell, "URL": cell.url}


def test_the_box_mounts_what_is_written_for_it_and_is_published_on_loopback_alone(tmp_path: Path) -> None:
    deployment.write(deployment.read(COMPOSE / "cell.toml"), tmp_path / "out")
    (found,) = _yaml(COMPOSE / "compose.yaml")
    mounts = [text.split(":")[0] for service in found["services"].values() for text in service["volumes"]]
    paths = {text for text in mounts if text.startswith("./")} - {"./cell.toml"}
    assert [text for text in sorted(paths) if not (tmp_path / text).is_file()] == []
    assert {text for text in mounts if not text.startswith("./")} == found["volumes"].keys()
    ports = [port for service in found["services"].values() for port in service.get("ports", ())]
    assert ports == [f"127.0.0.1:{4222 + number}:4222" for number in range(3)]


# the image ------------------------------------------------------------------------------------------
def test_the_image_is_built_of_what_is_locked_and_runs_as_nobody_of_weight() -> None:
    text = (INFRA / "Containerfile").read_text()
    build, _, final = text.rpartition("\nFROM ")
    installs = [line for line in build.splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or "--no-index --" in line or "--no-index /" in line for line in installs)
    assert len(installs) == 2
    assert [line for line in final.splitlines() if line.startswith("USER")] == ["USER 10001:10001"]
    assert "COPY --from=build" in final


def test_what_the_image_copies_is_there_and_let_through() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for line in (INFRA / "Containerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == let_through
    assert [path for path in sorted(copied) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_probe_of_the_image_tells_well_from_unwell(status: int, code: int, tmp_path: Path) -> None:
    answering = (
        "import http.server as h\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        f"    def do_GET(self): self.send_response({status}); self.end_headers()\n"
        "server = h.HTTPServer(('127.0.0.1', 0), A)\n"
        "print(server.server_port, flush=True)\n"
        "server.handle_request()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", answering], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        words = [sys.executable, str(INFRA / "probe.py"), f"http://127.0.0.1:{port}/readyz"]
        proxied = {**os.environ, "http_proxy": "http://127.0.0.1:1", "no_proxy": ""}  # as many containers are told
        assert subprocess.run(words, check=False, capture_output=True, env=proxied).returncode == code
    assert subprocess.run(words, check=False, capture_output=True).returncode == 1, "nobody answers any more"


# systemd --------------------------------------------------------------------------------------------
def test_the_target_brings_every_service() -> None:
    brought = " ".join(_unit("fairlease.target")["Wants"]).split()
    assert brought == [f"fairlease@{name}.service" for name in SERVICES]


def test_units_start_what_a_restart_mends_and_leave_down_what_it_cannot() -> None:
    from fairlease.runtime.errors import STAYS_DOWN

    down = " ".join(map(str, sorted(STAYS_DOWN)))
    assert _unit("fairlease@.service")["RestartPreventExitStatus"] == [down]
    assert _unit("fairlease-agent.service")["RestartPreventExitStatus"] == [down]


def test_each_process_of_a_machine_may_be_told_a_port_of_its_own() -> None:
    for unit, name in (("fairlease@.service", "%i"), ("fairlease-agent.service", "agent")):
        told = ["/etc/fairlease/environment", f"-/etc/fairlease/{name}.environment"]
        assert _unit(unit)["EnvironmentFile"] == told, "the last one counts, and need not be there"


def test_jobs_outlive_the_unit_of_their_agent() -> None:
    agent = _unit("fairlease-agent.service")
    assert (agent["KillMode"], agent["SendSIGKILL"], agent["Delegate"]) == (["process"], ["no"], ["yes"])
    assert "PrivateTmp" not in agent, "jobs would have it too"


# alerts ---------------------------------------------------------------------------------------------
def test_every_alert_is_made_of_figures_that_there_are_and_leads_to_what_to_do() -> None:
    (found,) = _yaml(INFRA / "prometheus/fairlease.rules.yml")
    rules = [rule for group in found["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"\bfairlease_(\w+)", rule["expr"])}
    figures = set(re.findall(r"`fairlease_(\w+)`", (ROOT / "docs/seeing.md").read_text()))
    assert {name.removesuffix("_bucket") for name in asked} <= figures
    sources = "".join(path.read_text() for path in (ROOT / "services").rglob("*.py"))
    assert [name for name in sorted(figures) if f'"{name}"' not in sources] == [], "the page tells what there is"
    page = (ROOT / "docs/deploying.md").read_text()
    for rule in (rule for rule in rules if "alert" in rule):
        assert rule["annotations"]["runbook"] == "docs/deploying.md#when-an-alert-fires", rule["alert"]
        assert f"`{rule['alert']}`" in page, rule["alert"]


def test_every_alert_is_tried() -> None:
    (found,) = _yaml(INFRA / "prometheus/fairlease.rules.yml")
    tried = (INFRA / "prometheus/fairlease.test.yml").read_text()
    alerts = [rule["alert"] for group in found["groups"] for rule in group["rules"] if "alert" in rule]
    assert [name for name in alerts if name not in tried] == []
