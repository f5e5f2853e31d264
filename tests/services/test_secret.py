"""A secret is held in memory and comes out by no door but the one with its name."""

import copy
import dataclasses
import io
import json
import logging
import marshal
import pickle
import pprint
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from fairlease.runtime import deployment, keys
from fairlease.runtime.redaction import secrets_in
from fairlease.runtime.secret import SHOWN, Secret
from fairlease.runtime.telemetry import line_formatter
from tests.house.tree import ROOT

CANARY = "SUCANARY7C1E90B2D4"


class _Struct(msgspec.Struct):
    name: str
    held: Secret


@dataclasses.dataclass
class _Data:
    name: str
    held: Secret


class _Tuple(NamedTuple):
    name: str
    held: Secret


def _traced(secret: Secret) -> str:
    """What a debugger or a collector of errors prints: the lines and the variables of each."""
    try:
        json.dumps(secret)
    except TypeError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def _logged(secret: Secret) -> str:
    stream = io.StringIO()
    logger = logging.getLogger("fairlease.test-secret")
    for formatter in (None, line_formatter("health", "a")):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    logger.warning("with %s and %r", secret, secret, extra={"held": secret})
    return stream.getvalue()


def _printed(secret: Secret) -> str:
    stream = io.StringIO()
    print(secret, [secret], file=stream)
    return stream.getvalue()


SHOWING: dict[str, Callable[[Secret], str]] = {
    "str": str,
    "repr": repr,
    "an f-string": lambda secret: f"{secret}",
    "an f-string with a conversion": lambda secret: f"{secret!r} {secret!s} {secret!a}",
    "an f-string with a width": lambda secret: f"{secret:>40}",
    "an f-string that names its variable": lambda secret: f"{secret=}",
    "format": "{0} {0!r}".format,
    "per cent": lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 - as above
    "print": _printed,
    "pprint": lambda secret: pprint.pformat([secret, {"held": secret}]),
    "a list": lambda secret: str([secret]),
    "a dict": lambda secret: str({secret: secret}),
    "a struct": lambda secret: repr(_Struct("x", secret)),
    "a dataclass": lambda secret: repr(_Data("x", secret)) + str(dataclasses.asdict(_Data("x", secret))),
    "a named tuple": lambda secret: repr(_Tuple("x", secret)) + str(_Tuple("x", secret)._asdict()),
    "a key": lambda secret: repr(keys.Key("audit", secret)) + str(keys.Key("audit", secret)),
    "builtins of a struct": lambda secret: str(msgspec.structs.asdict(_Struct("x", secret))),
    "JSON with a default": lambda secret: json.dumps([secret], default=str),
    "msgspec with a hook": lambda secret: msgspec.json.encode(secret, enc_hook=repr).decode(),
    "an exception": lambda secret: str(ValueError("wrong", secret)) + repr(ValueError(secret)),
    "a traceback with its variables": _traced,
    "a line of a log": _logged,
    "a copy": lambda secret: str(copy.copy(secret)) + str(copy.deepcopy([secret])),
}


@pytest.mark.parametrize("door", SHOWING)
def test_whatever_shows_a_secret_shows_that_it_is_one(door: str) -> None:
    seen = SHOWING[door](Secret(CANARY))
    assert CANARY not in seen
    assert "Secret(" in seen


def _joined(secret: Any) -> object:  # noqa: ANN401 - what no type checker lets pass
    return "".join(["x", secret])


CARRYING: dict[str, Callable[[Any], object]] = {
    "JSON": json.dumps,
    "JSON of a key": lambda secret: json.dumps(keys.Key("audit", secret)),
    "msgspec's JSON": msgspec.json.encode,
    "msgspec's JSON of a struct": lambda secret: msgspec.json.encode(_Struct("x", secret)),
    "msgspec's JSON of a dataclass": lambda secret: msgspec.json.encode(_Data("x", secret)),
    "msgspec's JSON of a key": lambda secret: msgspec.json.encode(keys.Key("audit", secret)),
    "MessagePack": msgspec.msgpack.encode,
    "builtins": msgspec.to_builtins,
    "pickle": pickle.dumps,
    "pickle by its first protocol": lambda secret: pickle.dumps(secret, protocol=0),
    "pickle of a key": lambda secret: pickle.dumps(keys.Key("audit", secret)),
    "marshal": marshal.dumps,
    "bytes": bytes,
    "a list of its letters": list,
    "a join": _joined,
    "a sum": lambda secret: "x" + secret,
    "a slice": lambda secret: secret[:4],
    "its length": len,
    "its variables": vars,
    "a path": Path,
    "another attribute": lambda secret: setattr(secret, "other", 1),
}


@pytest.mark.parametrize("door", CARRYING)
def test_whatever_would_carry_a_secret_away_is_refused(door: str) -> None:
    with pytest.raises((TypeError, AttributeError, ValueError)) as caught:
        CARRYING[door](Secret(CANARY))
    assert CANARY not in str(caught.value)


def test_who_asks_by_name_has_the_text_and_equal_secrets_are_equal() -> None:
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    assert secret == Secret(CANARY)
    assert hash(secret) == hash(Secret(CANARY))
    assert secret != Secret(CANARY + "x")
    assert secret != CANARY
    assert Secret("\udcff") == Secret("\udcff"), "a variable may hold what is no text"
    assert (bool(secret), bool(Secret(""))) == (True, False)


def test_what_is_shown_does_not_tell_how_long_it_is() -> None:
    assert {str(Secret("x" * length)) for length in (0, 1, 58)} == {SHOWN}


def test_seeds_passwords_and_what_an_environment_keeps_are_secrets(tmp_path: Path) -> None:
    """Every place that holds one in memory says so by its type."""
    cell = deployment.Deployment(servers=(deployment.Server(name="bus-1", host="127.0.0.1"),))
    key = keys.make(tmp_path, "audit")
    deployment.write(cell, tmp_path)
    password = deployment.password_of(tmp_path)
    (known,) = secrets_in({"DB_PASSWORD": CANARY})
    for held in (key.seed, password, known):
        assert type(held) is Secret
        assert held.reveal()
    assert known.reveal() == CANARY


def test_the_text_of_a_secret_is_asked_for_where_it_is_used_and_nowhere_else() -> None:
    """Who adds a place here says in its review why the text must be known there."""
    places = {
        str(path.relative_to(ROOT / "services" / "fairlease")): len(re.findall(r"\.reveal\(\)", text))
        for path in (ROOT / "services").rglob("*.py")
        if ".reveal()" in (text := path.read_text(encoding="utf-8"))
    }
    assert places == {"runtime/bus.py": 1, "runtime/deployment.py": 2, "runtime/keys.py": 4, "runtime/redaction.py": 1}
