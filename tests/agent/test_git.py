"""Commits on a host: fetched by the machine's git from where the site allows, and believed only if they stand there."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from fairlease.agent.git import CommitRefused, Git, _end_of, environment, scheme_of
from fairlease.agent.identity import User
from fairlease.runtime.errors import ConfigWrong
from fairlease.runtime.settings import GIT_SCHEMES, read_settings
from fairlease_schemas.job import End
from fairlease_schemas.orders import RunOrder
from fairlease_schemas.reports import RunStarted
from tests.agent.bench import Bench, alive, shell, until

IDENTITY = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")


def git(at: Path, *words: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(at), *IDENTITY, *words], env=kept, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(repo: Path, text: str) -> str:
    (repo / "train.txt").write_text(text)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", text)
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with two commits: `one` and `two`."""
    path = tmp_path / "train"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, "one")
    commit(path, "two")
    return path


def at(bench: Bench, name: str, repo: Path, sha: str, script: str = "cat train.txt; git rev-parse HEAD") -> RunOrder:
    source = {"repo": f"file://{repo}", "commit": sha}
    return bench.part(name, shell(f"{script}; echo; echo $FAIRLEASE_SOURCE"), source=source)


@pytest.mark.asyncio
async def test_a_job_finds_the_commit_where_it_works_also_one_that_is_no_branch_any_more(
    bench: Bench, repo: Path
) -> None:
    # rule: 1.13
    for number, sha in enumerate((git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "HEAD~1"))):
        part = at(bench, f"n{number}", repo, sha)
        bench.order(part)
        assert (await bench.gone(part)).end == End.SUCCEEDED
        assert bench.log(part) == f"{('two', 'one')[number]}{sha}\n\n{sha}\n"


@pytest.mark.asyncio
async def test_a_commit_that_is_not_there_is_a_start_that_failed(bench: Bench, repo: Path) -> None:
    # rule: 1.13
    part = at(bench, "a", repo, "0" * 40)
    bench.order(part)
    gone = await bench.gone(part)
    assert gone.end == End.START_FAILED
    assert gone.detail.startswith(f"commit {'0' * 40} of file://{repo}: ")
    assert bench.of(part, RunStarted) == []
    await until(lambda: not list((bench.home / "code").iterdir()), "nothing of it is left")


@pytest.mark.asyncio
async def test_a_repository_that_is_not_there_is_told_in_gits_words(bench: Bench, tmp_path: Path) -> None:
    part = at(bench, "a", tmp_path / "nowhere", "0" * 40)
    bench.order(part)
    assert (
        "Could not read from remote repository" in (await bench.gone(part)).detail
        or "nowhere" in (await bench.gone(part)).detail
    )


@pytest.mark.asyncio
async def test_where_there_is_no_git_it_is_said(bench: Bench, repo: Path) -> None:
    # rule: 1.13
    bench.git = "no-such-git"
    bench.restart()
    part = at(bench, "a", repo, "0" * 40)
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail) == (
        End.START_FAILED,
        f"commit {'0' * 40} of file://{repo}: there is no git on this host",
    )


@pytest.mark.asyncio
async def test_a_scheme_that_the_site_does_not_allow_is_refused(bench: Bench) -> None:
    # rule: 1.13
    part = bench.part("a", source={"repo": "https://git.example.org/x", "commit": "0" * 40})
    bench.order(part)
    detail = (await bench.gone(part)).detail
    assert detail.endswith("this host allows no https repositories (FAIRLEASE_GIT_SCHEMES: file)")


@pytest.mark.asyncio
async def test_a_git_that_hangs_is_ended_with_all_it_started_and_others_begin_meanwhile(
    bench: Bench, repo: Path, tmp_path: Path
) -> None:
    # rule: 1.13
    pids, slow = tmp_path / "pids", tmp_path / "slow-git"
    slow.write_text(f"#!/bin/sh\necho $$ >> {pids}\nsleep 600 &\necho $! >> {pids}\nwait\n")
    slow.chmod(0o755)
    bench.git, bench.git_s = str(slow), 1.0
    bench.restart()
    part, other = at(bench, "a", repo, "0" * 40), bench.part("b", ("echo", "other"), gpus=(1,))
    began_s = time.monotonic()
    bench.order(part, other)
    assert (await bench.gone(other)).end == End.SUCCEEDED
    gone = await bench.gone(part)
    assert gone.detail.endswith("git did not bring it within 1 s")
    assert time.monotonic() - began_s >= 1.0
    await until(lambda: not [pid for pid in pids.read_text().split() if alive(int(pid))], "nothing of it is left")


@pytest.mark.asyncio
async def test_a_repository_that_fills_the_disk_is_refused(bench: Bench, repo: Path) -> None:
    # rule: 1.13
    bench.git_bytes = 1 << 20
    bench.restart()
    (repo / "big").write_bytes(os.urandom(600_000))  # it fits once, and not twice
    part = at(bench, "a", repo, commit(repo, "three"))
    bench.order(part)
    gone = await bench.gone(part)
    assert (gone.end, gone.detail.rpartition(": ")[2]) == (
        End.START_FAILED,
        "it takes more than 1048576 bytes, or 1000000 files",
    )
    await until(lambda: not list((bench.home / "code").iterdir()), "nothing of it is left")


@pytest.mark.asyncio
async def test_a_fetch_is_ended_while_it_fills_the_disk(bench: Bench, repo: Path, tmp_path: Path) -> None:
    # rule: 1.13
    endless = tmp_path / "endless-git"
    endless.write_text("#!/bin/sh\nhead -c 2000000 /dev/zero > pack\nexec sleep 600\n")
    endless.chmod(0o755)
    bench.git, bench.git_bytes, bench.git_s = str(endless), 1 << 20, 600.0
    bench.restart()
    part = at(bench, "a", repo, "0" * 40)
    bench.order(part)
    assert (await bench.gone(part)).detail.endswith("it takes more than 1048576 bytes, or 1000000 files")


@pytest.mark.asyncio
async def test_of_all_that_git_says_the_end_is_kept() -> None:
    said = asyncio.StreamReader()
    said.feed_data(b"x" * 10_000_000 + b"\nfatal: no")
    said.feed_eof()
    kept = await _end_of(said)
    assert len(kept) == 64 * 1024
    assert kept.endswith(b"\nfatal: no")


@pytest.mark.asyncio
@pytest.mark.parametrize("named", ["HEAD", "--upload-pack=touch x", "main", "0" * 39, "G" * 40, ""])
async def test_what_is_no_whole_commit_is_never_given_to_git(tmp_path: Path, named: str) -> None:
    # rule: 1.13
    with pytest.raises(CommitRefused, match="all its 40 or 64 hexadecimal digits"):
        await Git(("file",)).check_out(f"file://{tmp_path}", named, tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.asyncio
async def test_a_repository_that_looks_like_an_option_is_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommitRefused):
        await Git(("ssh",)).check_out("--mirror=fetch", "0" * 40, tmp_path / "into")
    assert "--mirror=fetch" in (tmp_path / "into" / ".git" / "config").read_text()


@pytest.mark.asyncio
async def test_hooks_and_templates_of_the_machine_do_not_run(
    bench: Bench, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ran = tmp_path / "home", tmp_path / "ran"
    hooks = home / "template" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (hooks / "post-checkout").chmod(0o755)
    (home / ".gitconfig").write_text(f"[init]\ntemplateDir = {home}/template\n[core]\nhooksPath = {hooks}\n")
    monkeypatch.setenv("HOME", str(home))
    part = at(bench, "a", repo, git(repo, "rev-parse", "HEAD"))
    bench.order(part)
    assert (await bench.gone(part)).end == End.SUCCEEDED
    assert not ran.exists()


def test_git_is_told_no_address_of_ours_and_asks_nobody() -> None:
    agent = {"PATH": "/bin", "FAIRLEASE_URL": "nats://x", "GIT_DIR": "/elsewhere", "HTTPS_PROXY": "http://proxy"}
    assert environment(agent, ("https", "ssh")) == {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://proxy",
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": "https:ssh",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20",
    }


def test_a_users_git_has_his_home_and_nothing_of_the_agents_but_its_way_into_the_network() -> None:
    # rule: 1.16
    agent = {
        "PATH": "/bin",
        "HOME": "/srv/agent",
        "USER": "root",
        "SSH_AUTH_SOCK": "/s",
        "XDG_CONFIG_HOME": "/srv/agent/.config",
        "https_proxy": "http://proxy",
        "TMPDIR": "/srv/agent/tmp",
        "AWS_SECRET_ACCESS_KEY": "x",
        "GIT_CONFIG": "/srv/agent/x",
    }
    assert environment(agent, ("https",), User("ann", 7, 8, "/home/ann")) == {
        "PATH": "/bin",
        "HOME": "/home/ann",
        "USER": "ann",
        "LOGNAME": "ann",
        "https_proxy": "http://proxy",
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": "https",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20",
    }


@pytest.mark.parametrize(
    ("repo", "scheme"),
    [
        ("https://git.example.org/x", "https"),
        ("file:///srv/x", "file"),
        ("ssh://git@host/x", "ssh"),
        ("git@host:x", "ssh"),
    ],
)
def test_a_repository_is_reached_by_the_scheme_it_is_written_with(repo: str, scheme: str) -> None:
    assert scheme_of(repo) == scheme


def test_a_site_says_which_schemes_its_agents_use() -> None:
    assert read_settings(env={}).git_schemes == GIT_SCHEMES
    assert read_settings(env={"FAIRLEASE_GIT_SCHEMES": "https, file"}).git_schemes == ("https", "file")
    assert read_settings(env={"FAIRLEASE_GIT_SCHEMES": ""}).git_schemes == ()
    with pytest.raises(ConfigWrong, match="'ext' is none of https, ssh, file"):
        read_settings(env={"FAIRLEASE_GIT_SCHEMES": "https,ext"})
