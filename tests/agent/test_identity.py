"""Whose processes a run is (1.16): by a map that is root's, in a directory of its own, with nothing of ours in reach.

Only root can give a run to somebody else. Where these tests are not run by root they hold what then is so: every
run is the agent's own user's, whatever the map says.
"""

import logging
import os
import pwd
import shutil
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlease.agent import identity, layout, process, stores
from fairlease.agent.identity import IdentityRefused, User, Users, open_users
from fairlease.agent.record import Facts, RunDirectory
from fairlease.cli.packing import pack
from fairlease.runtime.errors import ConfigWrong
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunStarted
from tests.agent.bench import Bench, keeper_of, kill_all, shell, until
from tests.agent.test_git import commit, git

IS_ROOT = os.geteuid() == 0
ANN, BEN = (pwd.getpwnam(name) for name in ("nobody", "daemon"))
SELF = pwd.getpwuid(os.geteuid())


def owner_of(name: str) -> pwd.struct_passwd:
    """Whose a run is that the map gives this user."""
    return pwd.getpwnam(name) if IS_ROOT else SELF


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may pass through, which those of pytest are not."""
    path = Path(tempfile.mkdtemp(prefix="fairlease-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    kill_all(path)
    shutil.rmtree(path)


def map_at(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o644)
    return path


@pytest.fixture
async def mapped(place: Path) -> AsyncIterator[Bench]:
    """A host whose map gives ann to nobody, and ben to daemon; beside it stands what a bus wrote."""
    users = map_at(place / "users", f"# who is who\nann {ANN.pw_name}\nben {BEN.pw_name}  # the other\n\n")
    state = place / "state"
    state.mkdir()
    (state / "bus.json").write_text('{"url": "nats://secret@bus"}')
    (state / "bus").mkdir()
    (state / "bus" / "log").write_text("s3cret")
    bench = Bench(state, users=open_users(str(users), state)).open()
    yield bench
    bench.close()


def of(part: RunOrder, account: str) -> RunOrder:
    return replace(part, account=account)


@pytest.mark.asyncio
async def test_a_run_is_its_submitters_user_with_his_groups_home_and_directory(mapped: Bench) -> None:
    # rule: 1.16
    script = (
        'echo $(id -u) $(id -g) $(id -G); echo "$HOME"; umask; pwd; touch made; '
        'echo "{}" >"$FAIRLEASE_SAID_DIR/x"; grep NoNewPrivs /proc/self/status'
    )
    part = of(mapped.part("a", shell(script)), "ann")
    mapped.order(part)
    gone = await mapped.gone(part)
    who, work = owner_of(ANN.pw_name), mapped.directory(part).path / layout.WORK
    groups = os.getgrouplist(who.pw_name, who.pw_gid) if IS_ROOT else [who.pw_gid, *os.getgroups()]
    ids, home, mask, where, privileges = mapped.log(part).splitlines()
    assert gone.end is End.SUCCEEDED
    assert ids.split()[:2] == [str(who.pw_uid), str(who.pw_gid)]
    assert set(map(int, ids.split()[2:])) == set(groups)
    assert (mask, where) == ("0022", str(work))
    assert home == (who.pw_dir if IS_ROOT else os.environ["HOME"])
    assert privileges.split()[1] == ("1" if IS_ROOT else privileges.split()[1])
    assert (work.stat().st_uid, work.stat().st_mode & 0o777) == (who.pw_uid, 0o700)
    assert (work / "made").stat().st_uid == who.pw_uid
    assert (mapped.directory(part).path / layout.SAID / "x").exists()


@pytest.mark.asyncio
async def test_nothing_of_the_agents_and_of_other_users_can_be_read_or_changed(mapped: Bench, place: Path) -> None:
    # rule: 1.16
    other = of(mapped.part("b", shell("echo mine >own; echo up; exec sleep 600"), gpus=(1,)), "ben")
    mapped.order(other)
    await mapped.printed(other, "up")
    runs, theirs = mapped.home / "runs", mapped.directory(other).path
    state = place / "state"
    reads = [
        *(
            "../run.json",
            "../shim.json",
            "../leader.json",
            "../log",
            "../shim.err",
            "../leader.reserved",
            "../../../lease",
        ),
        *(
            f"{state}/bus.json",
            f"{state}/bus/log",
            f"{theirs}/{layout.WORK}/own",
            f"{theirs}/log",
            f"{theirs}/preempt.reserved",
        ),
        f"/proc/{keeper_of(mapped.directory(other)).pid}/environ",
    ]
    lists = ["..", "../..", f"{state}", f"{theirs}", f"{theirs}/work", f"{mapped.home}"]
    writes = [
        "../stop.json",
        "../gone.json",
        "../work2",
        "../../x",
        "../../../lease",
        "../../../order.json",
        f"{state}/x",
    ]
    script = "\n".join(
        [
            *(f"cat {name} >/dev/null 2>&1 && echo read {name}" for name in reads),
            *(f"ls {name} >/dev/null 2>&1 && echo listed {name}" for name in lists),
            *(f"(echo forged >>{name}) 2>/dev/null && echo wrote {name}" for name in writes),
            "mv ../run.json ../x 2>/dev/null && echo moved",
            "rm -rf ../said ../work 2>/dev/null; [ -d ../said ] && echo stays",
            f"kill -9 {keeper_of(mapped.directory(other)).pid} 2>/dev/null && echo killed; true",
        ]
    )
    if not IS_ROOT:
        assert mapped.directory(other).path.stat().st_uid == os.geteuid()
        return
    part = of(mapped.part("a", shell(script)), "ann")
    mapped.order(part, other)
    await mapped.gone(part)
    assert mapped.log(part) == "stays\n"
    assert runs.stat().st_mode & 0o777 == identity.ENTER


@pytest.mark.asyncio
async def test_the_code_of_a_run_is_its_users_too_but_not_what_its_links_point_at(mapped: Bench, place: Path) -> None:
    # rule: 1.13 1.16
    root, elsewhere = place / "project", place / "elsewhere"
    (root / "code").mkdir(parents=True)
    (root / "code" / "train.txt").write_text("the code\n")
    elsewhere.write_text("ours")
    (root / "alias").symlink_to("code/train.txt")
    bundle = mapped.upload("ann", pack(str(root)).data)
    script = f"echo more >> alias; cat code/train.txt; ln -sf {elsewhere} code/out; (echo spoilt > code/out) || true"
    part = of(mapped.part("a", shell(script), source={"bundle": bundle}), "ann")
    mapped.order(part)
    assert (await mapped.gone(part)).end is End.SUCCEEDED
    first, second, *_ = mapped.log(part).splitlines()
    work, who = mapped.directory(part).path / layout.WORK, owner_of(ANN.pw_name)
    assert (first, second) == ("the code", "more")
    assert {path.lstat().st_uid for path in (work, *work.rglob("*"))} == {who.pw_uid}
    assert elsewhere.stat().st_uid == os.getuid()
    assert elsewhere.read_text() == ("ours" if IS_ROOT else "spoilt\n")


@pytest.mark.parametrize("is_his", [True, False], ids=["a clone that he made", "code that we brought"])
def test_what_a_run_works_with_says_and_prints_is_closed_to_others_of_its_group(place: Path, is_his: bool) -> None:
    # rule: 1.16
    who = owner_of(ANN.pw_name)
    code, runs = place / "code", place / "runs"
    runs.mkdir()
    code.mkdir()
    (code / "train.txt").touch()
    for path in (code / "train.txt", code):
        path.chmod(0o755)
        if is_his:
            os.chown(path, who.pw_uid, who.pw_gid)
    facts = Facts(attempt="job-a-a1", job="job-a", token="1-1-0", digest="", gpus=(), hosts=("h",), rank=0, boot="b")
    user = User(name=who.pw_name, uid=who.pw_uid, gid=who.pw_gid, home="/")
    made = RunDirectory.create(runs, facts, code=code, owner=user)
    modes = {name: (made.path / name).stat().st_mode & 0o777 for name in (layout.WORK, layout.SAID)}
    assert modes == {layout.WORK: 0o700, layout.SAID: 0o700}
    assert {(made.path / name).stat().st_uid for name in (layout.WORK, "work/train.txt", layout.SAID)} == {who.pw_uid}
    others = [path.name for path in made.path.iterdir() if path.is_file() and path.stat().st_mode & 0o077]
    assert sorted(others) == [layout.RESERVED, "preempt.reserved"], "of the notice no more is said than when it ends"


@pytest.mark.asyncio
async def test_many_files_are_handed_to_their_user_beside_the_loop(
    mapped: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "project").mkdir()
    (place / "project" / "train.txt").write_text("the code")
    threads: list[bool] = []
    chown = os.chown

    def seen(path: Any, *words: Any, **more: Any) -> None:  # noqa: ANN401 - handed on as they are
        if "train.txt" in str(path):
            threads.append(threading.current_thread() is threading.main_thread())
        chown(path, *words, **more)

    monkeypatch.setattr(os, "chown", seen)
    bundle = mapped.upload("ann", pack(str(place / "project")).data)
    part = of(mapped.part("a", shell("cat train.txt"), source={"bundle": bundle}), "ann")
    mapped.order(part)
    assert (await mapped.gone(part)).end is End.SUCCEEDED
    assert threads == ([False] if IS_ROOT else [])


def repository(path: Path, owner: pwd.struct_passwd) -> str:
    """One of his with one commit, which is returned."""
    path.mkdir(mode=0o755)
    git(path, "init", "-q", "-b", "main")
    sha = commit(path, "the code")
    if IS_ROOT:
        for found in (path, *path.rglob("*")):
            os.chown(found, owner.pw_uid, owner.pw_gid)
    return sha


@pytest.mark.asyncio
async def test_a_commit_is_fetched_by_the_runs_user_with_his_home_and_no_rights_to_gain(
    mapped: Bench, place: Path
) -> None:
    # rule: 1.13 1.16
    sha, seen, program = repository(place / "repo", ANN), place / "seen", place / "git"
    seen.touch()
    seen.chmod(0o666)
    watched = f'(id -u; id -G; grep NoNewPrivs /proc/self/status; echo "HOME=$HOME") | tr "\\n" " " >> {seen}'
    program.write_text(f'#!/bin/sh\n{watched}; echo >> {seen}\nexec git "$@"\n')
    program.chmod(0o755)
    mapped.git = str(program)
    mapped.restart()
    source = {"repo": f"file://{place}/repo", "commit": sha}
    part = of(mapped.part("a", shell("cat train.txt; git rev-parse HEAD; touch made"), source=source), "ann")
    mapped.order(part)
    gone = await mapped.gone(part)
    assert (gone.end, mapped.log(part)) == (End.SUCCEEDED, f"the code{sha}\n"), gone.detail
    work, who = mapped.directory(part).path / layout.WORK, owner_of(ANN.pw_name)
    assert {path.lstat().st_uid for path in (work, *work.rglob("*"))} == {who.pw_uid}
    assert work.stat().st_mode & 0o777 == 0o700
    lines = seen.read_text().splitlines()
    assert len(lines) >= 5
    for line in lines:
        uid, *groups, _, privileges, home = line.split()
        assert int(uid) == who.pw_uid
        if IS_ROOT:
            assert sorted(map(int, groups)) == sorted(os.getgrouplist(who.pw_name, who.pw_gid))
            assert (privileges, home) == ("1", f"HOME={who.pw_dir}")


@pytest.mark.asyncio
async def test_a_repository_that_only_others_may_read_is_not_cloned_for_a_run(mapped: Bench, place: Path) -> None:
    # rule: 1.16
    sha = repository(place / "repo", BEN)
    (place / "repo").chmod(0o700 if IS_ROOT else 0)
    for account in ("ann", "ben"):
        source = {"repo": f"file://{place}/repo", "commit": sha}
        part = of(mapped.part(account, shell("cat train.txt"), source=source), account)
        mapped.order(part)
        is_his = IS_ROOT and account == "ben"
        assert (await mapped.gone(part)).end is (End.SUCCEEDED if is_his else End.START_FAILED)
        assert mapped.log(part) == ("the code" if is_his else "")
    (place / "repo").chmod(0o755)


@pytest.mark.asyncio
async def test_the_terminal_of_a_run_is_its_users_and_its_socket_is_not(mapped: Bench) -> None:
    # rule: 1.16 1.17
    script = 'echo by name > "$(tty)"; stat -c %u "$(tty)"; test -w ../attach && echo open; :'
    part = of(mapped.part("a", shell(script), terminal=True), "ann")
    mapped.order(part)
    assert (await mapped.gone(part)).end is End.SUCCEEDED
    uid = owner_of(ANN.pw_name).pw_uid
    assert mapped.log(part).split() == ["by", "name", str(uid), *([] if IS_ROOT else ["open"])]


@pytest.mark.asyncio
async def test_a_user_reads_his_notice_and_what_he_ignores_ends_him_all_the_same(mapped: Bench) -> None:
    # rule: 1.16 8.1
    script = (
        "trap '' TERM; (setsid sh -c \"trap '' TERM; while :; do sleep 0.02; done\" &); echo up; "
        'while [ ! -e "$FAIRLEASE_PREEMPT_FILE" ]; do sleep 0.01; done; cat "$FAIRLEASE_PREEMPT_FILE"; echo; '
        "while :; do sleep 0.02; done"
    )
    part = of(mapped.part("a", shell(script)), "ann")
    mapped.order(part)
    await mapped.printed(part, "up")
    mapped.order(mapped.stop(part, grace_ms=300))
    gone = await mapped.gone(part)
    assert (gone.end, gone.exit_code) == (End.CANCELLED, 137)
    assert '"reason":"asked"' in mapped.log(part)


@pytest.mark.asyncio
async def test_what_a_killed_keeper_leaves_of_another_user_is_found_and_ended(mapped: Bench) -> None:
    # rule: 1.16
    part = of(mapped.part("a", shell("(setsid sleep 600 &); echo up; exec sleep 600")), "ann")
    mapped.order(part)
    await mapped.printed(part, "up")
    leader = mapped.directory(part).leader()
    assert leader is not None
    os.kill(keeper_of(mapped.directory(part)).pid, signal.SIGKILL)
    assert (await mapped.gone(part)).end is End.LOST
    mark = f"FAIRLEASE_PREEMPT_FILE={mapped.directory(part).preempt_file}".encode()
    assert process.remains(leader, mark) == []


@pytest.mark.asyncio
async def test_what_reopens_its_output_by_name_can_write_there(mapped: Bench) -> None:
    # rule: 1.16
    part = of(mapped.part("a", shell("echo said >/dev/stdout; echo wrong >/dev/stderr")), "ann")
    mapped.order(part)
    await mapped.gone(part)
    assert mapped.log(part) == "said\nwrong\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("account", "why"),
    [
        pytest.param("eve", "account eve has no user on this host: add a line 'eve USER' to {file}", id="not there"),
        pytest.param("", "account unsaid has no user on this host: add a line '* USER' to {file}", id="not said"),
    ],
)
async def test_an_account_that_is_nobodys_here_does_not_start(
    mapped: Bench, place: Path, account: str, why: str
) -> None:
    # rule: 1.16
    part = of(mapped.part("a"), account)
    mapped.order(part)
    gone = await mapped.gone(part)
    if IS_ROOT:
        detail = why.format(file=place / "users")
        assert (gone.end, gone.exit_code, gone.detail) == (End.START_FAILED, None, detail)
        assert mapped.of(part, RunStarted) == []
    else:
        assert gone.end is End.SUCCEEDED


@pytest.mark.asyncio
async def test_the_map_is_read_anew_for_each_run_and_not_believed_once_others_can_write_it(
    mapped: Bench, place: Path
) -> None:
    # rule: 1.16
    map_at(place / "users", f"* {BEN.pw_name}\nann {ANN.pw_name}\n")
    parts = [of(mapped.part(name, ("id", "-u"), gpus=(n,)), name) for n, name in enumerate(("ann", "eve"))]
    mapped.order(*parts)
    for part, name in zip(parts, (ANN.pw_name, BEN.pw_name), strict=True):
        gone = await mapped.gone(part)
        assert (gone.detail, mapped.log(part)) == ("", f"{owner_of(name).pw_uid}\n")
    (place / "users").chmod(0o664)
    last = of(mapped.part("c"), "ann")
    mapped.order(*parts, last)
    gone = await mapped.gone(last)
    assert gone.end is (End.START_FAILED if IS_ROOT else End.SUCCEEDED)
    assert not IS_ROOT or "its mode is 0664, and it says who may act as whom" in gone.detail


@pytest.mark.asyncio
async def test_who_cannot_become_the_user_does_not_start(mapped: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 1.16
    nobody_at_all = User(name="ghost", uid=(1 << 32) - 1, gid=ANN.pw_gid, home="/")
    monkeypatch.setattr(Users, "user_of", lambda *_: nobody_at_all)
    monkeypatch.setattr("fairlease.agent.record._give", lambda *_: None)
    part = of(mapped.part("a", ("id",)), "ann")
    mapped.order(part)
    gone = await mapped.gone(part)
    assert gone.end is (End.START_FAILED if IS_ROOT else End.SUCCEEDED)
    assert not IS_ROOT or gone.detail.startswith("cannot become user ghost")


# places for checkpoints -----------------------------------------------------------------------------

SAVES = shell('cd "$FAIRLEASE_CHECKPOINT_DIR" && touch saved-$FAIRLEASE_ATTEMPT_NUMBER && ls && stat -c "%u %a" .')


@pytest.mark.asyncio
async def test_a_place_for_checkpoints_is_the_users_and_stays_so_for_his_next_attempt(mapped: Bench) -> None:
    # rule: 1.16 8.2
    first = of(mapped.part("a", SAVES, checkpoint={"uri": "store:ckpt/team/run"}), "ann")
    second = replace(first, attempt="job-a-a2")
    uid = owner_of(ANN.pw_name).pw_uid
    for part, saved in ((first, "saved-1"), (second, "saved-1\nsaved-2")):
        mapped.order(part)
        await mapped.gone(part)
        mode = "700" if IS_ROOT else mapped.log(part).split()[-1]
        assert mapped.log(part) == f"{saved}\n{uid} {mode}\n"


def given_to(stores_dir: Path, user: pwd.struct_passwd, path: str, job: str = "job-a") -> Path:
    owner = User(name=user.pw_name, uid=user.pw_uid, gid=user.pw_gid, home=user.pw_dir)
    told = stores.environment(f"store:ckpt/{path}", job, stores_dir, can_make=True, owner=owner)
    return Path(told["FAIRLEASE_CHECKPOINT_DIR"])


def test_what_is_set_aside_stays_its_users_and_no_link_of_his_is_written_through(place: Path) -> None:
    # rule: 1.16 8.3
    who = ANN if IS_ROOT else SELF
    old, victim = given_to(place, who, "run"), place / "victim"
    victim.write_text("ours")
    (old / "step").write_text("1")
    (old / stores.ASIDE_NOTE).symlink_to(victim)
    owner = User(name=who.pw_name, uid=who.pw_uid, gid=who.pw_gid, home=who.pw_dir)
    for _ in range(2):  # a gang of two hosts
        stores.environment("store:ckpt/run", "job-a", place, can_make=True, owner=owner, clean_for=2)
    assert victim.read_text() == "ours"
    assert (old.with_name("job-a.before-a2") / "step").read_text() == "1"
    assert list(old.iterdir()) == []
    assert (old.stat().st_uid, old.stat().st_mode & 0o777) == (who.pw_uid, 0o700)


@pytest.mark.parametrize(
    ("path", "job", "why"),
    [
        pytest.param("run/job-a/link", "job-b", "leads through a link|Not a directory", id="a link of a user's"),
        pytest.param("run/job-a", "link", "leads through a link|Not a directory", id="a link in its own place"),
        pytest.param("run/job-a/file", "job-b", "Not a directory", id="a file in the way"),
        pytest.param("run/job-a", "job-b", "is another user's|Permission", id="below what is another user's"),
        pytest.param("run", "job-a", "is another user's|Permission", id="what is another user's"),
    ],
)
def test_rights_are_given_through_no_link_and_on_nothing_that_is_another_users(
    place: Path, path: str, job: str, why: str
) -> None:
    # rule: 1.16
    who = ANN if IS_ROOT else SELF
    its = given_to(place / "stores", who, "run")
    (place / "secret").mkdir(mode=0o700)
    (its / "link").symlink_to(place / "secret")
    (its / "file").touch()
    other = BEN if IS_ROOT else SELF
    asks = ANN if "link" in path + job or "file" in path else other
    if not IS_ROOT and "link" not in path + job and "file" not in path:
        assert given_to(place / "stores", SELF, path, job).stat().st_uid == os.geteuid()
        return
    with pytest.raises(stores.StoreRefused, match=why):
        given_to(place / "stores", asks if IS_ROOT else SELF, path, job)
    assert (place / "secret").stat().st_uid == os.geteuid()
    assert list((place / "secret").iterdir()) == []


# the map --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("ann", r":1: 'ann' is not 'ACCOUNT USER'", id="half a line"),
        pytest.param("\nann nobody x", r":2: .* is not 'ACCOUNT USER'", id="more than a line"),
        pytest.param("Ann nobody", "is not 'ACCOUNT USER'", id="no account"),
        pytest.param("ann ../x", "is not 'ACCOUNT USER'", id="no user"),
        pytest.param("ann 0", "is not 'ACCOUNT USER'", id="a number"),
        pytest.param("ann nobody\nann daemon", "account ann is nobody by an earlier line", id="two users for one"),
        pytest.param("x" * (1 << 20) + "y", "has more than", id="without bounds"),
    ],
)
def test_a_map_that_cannot_be_read_is_refused_with_its_line(place: Path, text: str, why: str) -> None:
    # rule: 1.16
    users = Users(map_at(place / "users", text))
    with pytest.raises(ConfigWrong, match=why if IS_ROOT else "owns it"):
        users.check()


@pytest.mark.parametrize(("mode", "owner"), [(0o666, 0), (0o620, 0), (0o644, ANN.pw_uid)])
def test_a_map_that_others_can_write_is_refused(place: Path, mode: int, owner: int) -> None:
    # rule: 1.16
    path = map_at(place / "users", "ann nobody\n")
    path.chmod(mode)
    if IS_ROOT:
        os.chown(path, owner, -1)
    with pytest.raises(ConfigWrong, match=r"owns it, its mode is 0\d+, and it says who may act as whom: chown root"):
        Users(path).check()


@pytest.mark.parametrize("kind", ["nothing", "directory", "pipe"])
def test_a_map_that_is_no_file_is_refused(place: Path, kind: str) -> None:
    # rule: 1.16
    path = place / "users"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(ConfigWrong, match=r"cannot be read|is no plain file"):
        Users(path).check()


def test_nobody_becomes_root_but_by_the_name_of_root(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # rule: 1.16
    toor = pwd.struct_passwd(("toor", "x", 0, 0, "", "/root", "/bin/sh"))
    ask = pwd.getpwnam
    monkeypatch.setattr(identity.pwd, "getpwnam", lambda name: toor if name == "toor" else ask(name))
    monkeypatch.setattr(identity, "_believed", lambda _path: "ann toor\nops root\neve nobody-of-that-name\n* nobody\n")
    users = Users(place / "users")
    with pytest.raises(
        IdentityRefused, match=r"account ann is user toor by .*, and that is root: write root to mean it"
    ):
        users.user_of("ann")
    with pytest.raises(IdentityRefused, match=r"account eve is user nobody-of-that-name by .* knows no such user"):
        users.user_of("eve")
    assert users.user_of("ops") == User(name="root", uid=0, gid=0, home=pwd.getpwnam("root").pw_dir)
    assert users.user_of("bob").name == users.user_of("").name == "nobody"


# the agent's start ----------------------------------------------------------------------------------


def test_who_is_not_root_says_so_once_and_does_not_use_the_map(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # rule: 1.16
    caplog.set_level(logging.INFO, "fairlease.agent")
    monkeypatch.setattr(identity.os, "geteuid", lambda: 1234)
    assert open_users(str(place / "not-there"), place) is None
    assert open_users("", place) is None
    unused = f", and {place / 'not-there'} is not used: only root can give a run to somebody else"
    said = "every run here is user 1234's, who is not root"
    assert [record.getMessage() for record in caplog.records] == [said + unused, said]


def test_root_without_a_map_is_warned_once_and_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # rule: 1.16
    monkeypatch.setattr(identity.os, "geteuid", lambda: 0)
    assert open_users("", place) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "every run here is root's" in caplog.text


def test_an_agent_with_a_map_does_not_start_where_users_could_not_reach_their_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 1.16
    monkeypatch.setattr(identity.os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_believed", lambda _path: "ann nobody\n")
    (place / "closed").mkdir(mode=0o700)
    with pytest.raises(ConfigWrong, match=r"users cannot enter .*/closed, so their runs .* such as /var/lib/fairlease"):
        open_users(str(place / "users"), place / "closed" / "state")
    assert not (place / "closed" / "state").exists()


def test_what_the_cell_keeps_in_its_state_directory_is_closed_to_users(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 1.16
    monkeypatch.setattr(identity.os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_believed", lambda _path: "ann nobody\n")
    state = place / "state"
    for name in ("bus", "lab", "logs", "stores"):
        (state / name).mkdir(parents=True)
    (state / "bus.json").write_text("{}")
    (state / "link").symlink_to(place)
    assert open_users(str(place / "users"), state) is not None
    modes = {path.name: path.lstat().st_mode & 0o777 for path in state.iterdir() if not path.is_symlink()}
    assert modes == {"bus": 0o700, "lab": 0o700, "logs": 0o700, "bus.json": 0o600, "stores": 0o755, "agent": 0o711}
    assert (state.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o711, 0o711)


def test_stores_that_are_a_link_to_what_others_share_stay_as_open_as_they_were(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rule: 1.16
    monkeypatch.setattr(identity.os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_believed", lambda _path: "ann nobody\n")
    (place / "shared").mkdir()
    (place / "shared").chmod(0o2775)
    (place / "state").mkdir()
    (place / "state" / "stores").symlink_to(place / "shared")
    open_users(str(place / "users"), place / "state")
    assert (place / "shared").stat().st_mode & 0o7777 == 0o2775


@pytest.mark.asyncio
async def test_an_agent_that_comes_back_has_the_runs_of_users_as_it_had_them(mapped: Bench) -> None:
    # rule: 1.16
    part = of(mapped.part("a", shell("echo up; while [ ! -e end ]; do sleep 0.01; done; id -u")), "ann")
    mapped.order(part)
    await mapped.printed(part, "up")
    mapped.restart()
    mapped.order(part)
    (mapped.directory(part).path / layout.WORK / "end").touch()
    await mapped.gone(part)
    await until(lambda: mapped.log(part) == f"up\n{owner_of(ANN.pw_name).pw_uid}\n", "it printed who it was")
