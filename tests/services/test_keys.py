import os
import re
import stat
from pathlib import Path

import pytest

from fairlease.runtime import keys
from fairlease.runtime.secret import Secret
from fairlease.runtime.settings import Settings, read_settings

OWN_EYES = 0o400


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    made = keys.make(tmp_path, "audit")
    assert made.identity == "audit"
    assert keys.make(tmp_path, "audit") == made
    assert _mode(keys.key_path(tmp_path, "audit")) == OWN_EYES
    assert _mode(tmp_path / "keys") == 0o700
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["audit.key"]


def test_a_folder_that_others_could_read_is_closed_before_a_key_lies_in_it(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o755)
    keys.make(tmp_path, "audit")
    assert _mode(tmp_path / "keys") == 0o700


def test_a_start_that_died_in_the_middle_of_a_key_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(number: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", dies)
        with pytest.raises(KeyboardInterrupt):
            keys.make(tmp_path, "audit")
    assert list((tmp_path / "keys").iterdir()) == []
    made = keys.make(tmp_path, "audit")
    assert keys.read(keys.key_path(tmp_path, "audit")) == made


def test_of_two_starts_that_make_the_same_key_the_first_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[keys.Key] = []
    sync = os.fsync

    def meanwhile(number: int) -> None:
        sync(number)
        if not first:
            first.append(keys.Key("", Secret("")))
            first[0] = keys.make(tmp_path, "audit")

    monkeypatch.setattr("os.fsync", meanwhile)
    assert keys.make(tmp_path, "audit") == first[0]
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["audit.key"]


def test_every_identity_has_a_key_of_its_own_and_the_bus_is_told_the_other_half(tmp_path: Path) -> None:
    pair = [keys.make(tmp_path, name) for name in ("client-a", "client-b")]
    assert len({key.seed for key in pair}) == 2
    for key in pair:
        assert re.fullmatch(r"SU[A-Z2-7]{56}", key.seed.reveal())
        assert re.fullmatch(r"U[A-Z2-7]{55}", key.public())


def test_a_seed_is_not_shown(tmp_path: Path) -> None:
    key = keys.make(tmp_path, "audit")
    assert (repr(key), str(key), f"{key}") == ("Key(identity='audit', seed=Secret(…))",) * 3


def test_without_keys_nobody_needs_one(tmp_path: Path) -> None:
    assert keys.find(Settings(state_dir=tmp_path), "client-local") is None


def test_where_there_are_keys_a_missing_one_is_said_with_its_place(tmp_path: Path) -> None:
    own = keys.make(tmp_path, "client-local")
    assert keys.find(Settings(state_dir=tmp_path), "client-local") == own
    with pytest.raises(keys.NoKey, match=rf"no key of client-ci in {tmp_path}/keys; .*FAIRLEASE_CREDS"):
        keys.find(Settings(state_dir=tmp_path), "client-ci")


def test_a_named_file_goes_before_the_state_directory(tmp_path: Path) -> None:
    other = keys.make(tmp_path / "other", "client-ci")
    keys.make(tmp_path / "home", "client-local")
    env = {
        "FAIRLEASE_HOME": str(tmp_path / "home"),
        "FAIRLEASE_CREDS": str(keys.key_path(tmp_path / "other", "client-ci")),
    }
    assert keys.find(read_settings(env=env), "client-local") == other


@pytest.mark.parametrize("text", ["", "{}", "[]", "SUAB", '{"identity": "audit"}', "\udcff"])
def test_what_is_no_key_is_said_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys" / "audit.key"
    path.parent.mkdir()
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(keys.KeyUnusable, match=r"is no key; delete it") as caught:
        keys.read(path)
    assert text == "" or text not in str(caught.value)


def test_a_named_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(keys.KeyUnusable, match="there is no such file; name the one you were given"):
        keys.find(Settings(state_dir=tmp_path, creds=str(tmp_path / "gone.key")), "audit")
    with pytest.raises(keys.KeyUnusable, match=r"cannot be read \(is a directory: name a plain file\); mend"):
        keys.find(Settings(state_dir=tmp_path, creds=str(tmp_path)), "audit")


def test_what_a_killed_run_left_half_made_is_removed_and_nothing_else(tmp_path: Path) -> None:
    keys.make(tmp_path, "audit")
    old, young, other = (tmp_path / keys.KEYS / name for name in ("audit.ab12.new", "local.cd34.new", "note.txt"))
    for path in (old, young, other):
        path.write_text("half", encoding="utf-8")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    # when: the next start asks for a key that is there
    keys.make(tmp_path, "audit")
    # then: who makes a key just now goes on
    assert [path.exists() for path in (old, young, other)] == [False, True, True]
