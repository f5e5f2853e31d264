"""A real Slurm for tests: its database and, for each tree of accounts, a controller that has computed fair shares.

Everything runs on loopback with paths and ports of its own; nothing is written outside the test's directory. No job
runs: usage is put where a controller keeps it between two of its lives, in its state file `assoc_usage`. So usage is
exact, two users can have used the same to the last bit, and a tree takes two seconds instead of a calculation period
of minutes. The head of that file, which says the version of its layout, is taken from one that a controller wrote.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairlease.simulator.rankers.tree import Share

PATIENCE_S: Final = 30.0
HEAD: Final = 10
"""Bytes before the first entry: the version of the layout and an instant."""

_DAEMON_CONF: Final = """
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
SlurmUser=root
LogFile={home}/slurmdbd.log
PidFile={home}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mysql}
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm
"""
_CONF: Final = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
StateSaveLocation={home}/{cluster}/state
SlurmdSpoolDir={home}/{cluster}/spool
SlurmctldPidFile={home}/{cluster}/slurmctld.pid
SlurmctldLogFile={home}/{cluster}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={home}/munge.sock
PriorityType=priority/multifactor
PriorityDecayHalfLife=0
PriorityUsageResetPeriod=NONE
PriorityWeightFairshare=100000
NodeName=node1 NodeAddr=127.0.0.1 CPUs=1 State=FUTURE
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Told(NamedTuple):
    """What `sshare` says of a user or an account; `fair_share` of users alone, both texts as they are printed."""

    usage: int
    fair_share: str
    level: str


class Lab:
    """The database's side: an authenticator, a MariaDB and a slurmdbd, and as many clusters as a test wants."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._dbd, self._mysql = _free_port(), _free_port()
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Everything but the controllers; ten seconds at most."""
        home = self.home
        (home / "munge.key").write_bytes(os.urandom(1024))
        (home / "munge.key").chmod(0o400)
        _checked(
            *("munged", "--force", f"--key-file={home}/munge.key", f"--socket={home}/munge.sock"),
            *(f"--pid-file={home}/munged.pid", f"--log-file={home}/munged.log", f"--seed-file={home}/munge.seed"),
        )
        install = "--auth-root-authentication-method=normal"
        _checked(
            "mariadb-install-db", "--no-defaults", f"--datadir={home}/db", "--user=root", install, "--skip-test-db"
        )
        self._run(
            *("mariadbd", "--no-defaults", "--user=root", f"--datadir={home}/db", f"--socket={home}/m.sock"),
            *("--bind-address=127.0.0.1", f"--port={self._mysql}", "--innodb-flush-log-at-trx-commit=0"),
        )
        client = ("mariadb", "--no-defaults", "-uroot", "-S", f"{home}/m.sock", "-e")
        grants = "create user slurm@'127.0.0.1' identified by 'lab'; grant all on *.* to slurm@'127.0.0.1'"
        eventually(lambda: _runs(*client, "select 1"), "MariaDB")
        _checked(*client, grants)
        conf = home / "slurmdbd.conf"
        conf.write_text(_DAEMON_CONF.format(home=home, dbd=self._dbd, mysql=self._mysql))
        conf.chmod(0o600)
        self.configure("none")
        shutil.copy(home / "none" / "slurm.conf", home / "slurm.conf")
        self._run("slurmdbd", "-D", conf=home / "slurm.conf")
        eventually(lambda: _runs("sacctmgr", "-n", "list", "cluster", conf=home / "slurm.conf"), "slurmdbd")

    def stop(self) -> None:
        """Every process that was started, by its own id."""
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        pid = self.home / "munged.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)

    def configure(self, cluster: str) -> Path:
        """The configuration of a cluster with a controller of its own."""
        (self.home / cluster / "state").mkdir(parents=True)
        conf = self.home / cluster / "slurm.conf"
        ports = {"dbd": self._dbd, "port": _free_port()}
        conf.write_text(_CONF.format(home=self.home, cluster=cluster, host=socket.gethostname(), **ports))
        return conf

    def load(self, cluster: str, root: Share) -> tuple[Path, dict[str, int]]:
        """Write the tree into the database; the cluster's configuration, and each user's number there."""
        conf = self.configure(cluster)
        plan = self.home / cluster / "tree.cfg"
        plan.write_text("\n".join(_plan(cluster, root)) + "\n")
        _checked("sacctmgr", "-i", "load", str(plan), conf=self.home / "slurm.conf")
        words = ("-n", "-p", "list", "assoc", f"cluster={cluster}", "format=user,id")
        rows = (line.split("|") for line in _said("sacctmgr", *words, conf=self.home / "slurm.conf").splitlines())
        return conf, {row[0]: int(row[1]) for row in rows if row[0]}

    def head_of_state(self) -> bytes:
        """How a controller of this version begins its file of usage: one starts, and ends as it should."""
        root = Share("root", 1, children=(Share("root", 1), Share("somebody", 1)), is_user=False)
        conf, ids = self.load("head", root)
        process = self._run("slurmctld", "-D", "-i", conf=conf)
        eventually(lambda: bool(_share_lines(conf)), "slurmctld")
        process.terminate()
        process.wait(PATIENCE_S)
        raw = (self.home / "head" / "state" / "assoc_usage").read_bytes()
        assert raw[HEAD:] == entries({ids[user]: 0 for user in sorted(ids, key=ids.__getitem__)}), raw.hex()
        return raw[:HEAD]

    def shares(self, cluster: str, root: Share, head: bytes) -> dict[str, Told]:
        """What sshare says of everybody in a tree once the controller knows what its users have used."""
        conf, ids = self.load(cluster, root)
        usage = {user.name: user.usage for user in _users(root)}
        assert ids.keys() == usage.keys()
        state = self.home / cluster / "state" / "assoc_usage"
        state.write_bytes(head + entries({ids[name]: used for name, used in usage.items()}))
        process = self._run("slurmctld", "-D", "-i", conf=conf)
        try:
            eventually(lambda: _is_computed(_told(conf), usage), f"fair shares of {cluster}")
            return _told(conf)
        finally:
            process.kill()
            process.wait()
            self._running.remove(process)

    def _run(self, *words: str, conf: Path | None = None) -> subprocess.Popen[bytes]:
        log = (self.home / f"{words[0]}.out").open("ab")
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_environment(conf))
        log.close()
        self._running.append(process)
        return process


def entries(usage: dict[int, int]) -> bytes:
    """The body of `assoc_usage`: number, usage as text, no usage by resource, no wall time of a group."""
    texts = {number: b"%d.000000\0" % used for number, used in usage.items()}
    return b"".join(struct.pack(f"!II{len(text)}sII", number, len(text), text, 0, 0) for number, text in texts.items())


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition; an assertion of what did not come."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, f"{what} is not there after {PATIENCE_S:g} s"
        time.sleep(0.05)


def _plan(cluster: str, root: Share) -> Iterator[str]:
    """The tree as `sacctmgr load` reads it."""
    yield f"Cluster - '{cluster}':Fairshare=1"
    yield "Parent - 'root'"
    yield from _children(root)


def _children(parent: Share) -> Iterator[str]:
    if parent.name != "root":
        yield f"Parent - '{parent.name}'"
    for child in parent.children:
        shares = "parent" if child.has_parent_share else str(child.shares)
        if not child.is_user:
            yield f"Account - '{child.name}':Description='{child.name}':Organization='lab':Fairshare={shares}"
        elif child.name == "root":
            yield f"User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare={shares}"
        else:
            yield f"User - '{child.name}':DefaultAccount='{parent.name}':Fairshare={shares}"
    for child in parent.children:
        if not child.is_user:
            yield from _children(child)


def _users(node: Share) -> Iterator[Share]:
    for child in node.children:
        yield from (child,) if child.is_user else _users(child)


def _told(conf: Path) -> dict[str, Told]:
    """Users by name; accounts by name behind a slash."""
    found = {}
    for account, user, usage, fair_share, level in _share_lines(conf):
        found[user or f"/{account}"] = Told(int(usage), fair_share, level)
    return found


def _share_lines(conf: Path) -> list[Sequence[str]]:
    if not _runs("sshare", "-h", conf=conf):
        return []
    said = _said("sshare", "-a", "-P", "-n", "-o", "Account,User,RawUsage,FairShare,LevelFS", conf=conf)
    return [[cell.strip() for cell in line.split("|")] for line in said.splitlines()]


def _is_computed(told: dict[str, Told], usage: dict[str, int]) -> bool:
    """Whether every user has what was put in, and a place of his own or shared: the last has not more than 1."""
    if any(told.get(name) is None or told[name].usage != used for name, used in usage.items()):
        return False
    return len({told[name].fair_share for name in usage}) > 1 or len(set(usage.values())) == 1


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _environment(conf: Path | None) -> dict[str, str]:
    return os.environ | ({"SLURM_CONF": str(conf)} if conf else {}) | {"LC_ALL": "C"}


def _said(*words: str, conf: Path | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=_environment(conf), timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def _checked(*words: str, conf: Path | None = None) -> None:
    """Run to a good end. What stays behind as a daemon must not hold our pipes, so the words go to nobody."""
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        env=_environment(conf),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}"


def _runs(*words: str, conf: Path | None = None) -> bool:
    done = subprocess.run(
        words, capture_output=True, stdin=subprocess.DEVNULL, check=False, env=_environment(conf), timeout=PATIENCE_S
    )
    return done.returncode == 0
