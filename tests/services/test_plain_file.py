"""Small files are read whole, but only plain ones, and so much of them: whoever reads them, nothing is waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlease.cli import policy, up
from fairlease.cli.exits import CommandError
from fairlease.cli.main import main
from fairlease.runtime import deployment, keys, plain_file, settings
from fairlease.runtime.errors import ConfigWrong
from fairlease.simulator.workload_file import scenario_of

READERS = {
    "a policy": policy._read,
    "the numbers of a key": lambda path: keys.read(Path(path)),
    "a cell of several machines": lambda path: deployment.read(Path(path)),
    "a workload": lambda path: scenario_of(Path(path)),
    "any other": plain_file.read,
}
COMMANDS = {
    "limits": ("compare", "--policies", "budget-window", "--must"),
    "a log": ("whatif", "--set", "patience_ms=1", "--from"),
    "a log with figures": ("metrics", "--log"),
    "a policy instead": ("whatif", "--from", "/dev/null", "--policy-file"),
    "prices": ("cost", "--prices"),
    "a log that is decided again": ("replay",),
    "a backup": ("restore",),
}


@pytest.fixture(params=["a pipe", "a device", "a directory"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of something that is no plain file."""
    if request.param == "a device":
        return "/dev/zero"
    path = tmp_path / "odd"
    if request.param == "a pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    return str(path)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_what_is_no_plain_file_is_told_and_not_waited_for(read: Callable[[str], object], odd: str) -> None:
    with pytest.raises((OSError, CommandError, ConfigWrong, keys.KeyUnusable)) as caught:
        read(odd)
    assert odd in str(caught.value)
    assert ": name a plain file" in str(caught.value)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_that_is_given_no_plain_file_says_so_at_once(
    words: tuple[str, ...], odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*words, odd])
    out, err = capsys.readouterr()
    assert code != 0
    assert out == ""
    assert odd in err
    assert ": name a plain file" in err


@pytest.mark.parametrize(("size", "is_read"), [(99, True), (100, True), (101, False)])
def test_a_file_is_read_up_to_its_limit(tmp_path: Path, size: int, *, is_read: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    if is_read:
        assert len(plain_file.read(path, 100)) == size
        return
    with pytest.raises(OSError, match="has more than 100 bytes, the limit"):
        plain_file.read(path, 100)


def test_what_stands_in_a_cells_directory_may_be_anything(tmp_path: Path) -> None:
    for name in ("bus.json", "cell.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigWrong, match="is a pipe"):
        settings.url_in(tmp_path)
    with pytest.raises(CommandError, match="is a pipe"):
        up.remembered(tmp_path)


def test_a_log_of_one_endless_line_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        file.truncate(3 << 20)
    assert main(["whatif", "--set", "patience_ms=1", "--from", str(path)]) == 1
    assert "line 1 of the log is longer than 2097152 bytes, so it is no record" in capsys.readouterr().err
