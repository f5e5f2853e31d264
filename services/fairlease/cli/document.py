"""A file of the YAML that contracts need, as plain data that remembers where everything stood.

YAML 1.2 core schema (`no` is text, `1:30` is text, `010` is ten), of which JSON is a part. It is read
from ruamel's stream of events, never through its composer: limits hold while the file is being read,
so an alias bomb or a million brackets cost no more than the few events before they are refused. Not
in this YAML: anchors, aliases, tags, directives, keys that are not text, duplicate keys, several documents,
infinities, control and bidirectional characters. What the data means is left to the contract.
"""

import re
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.scanner import Scanner

MAX_BYTES: Final = 64 * 1024
"""A contract is sent as at most 48 KiB of JSON; the rest is for comments and white space."""
MAX_DEPTH: Final = 20
MAX_NODES: Final = 5_000
_MAX_DIGITS: Final = 18

_HIDDEN: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_HIDDEN_IN_FILE: Final = re.compile(f"[{_HIDDEN}\ufeff\ufffe\uffff]")
_HIDDEN_IN_TEXT: Final = re.compile(f"[{_HIDDEN}\ufeff\r\ud800-\udfff]")
_INT: Final = re.compile(r"[-+]?[0-9]+")
_BASED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Place(NamedTuple):
    """Where something stands in the file; both count from 1."""

    line: int
    column: int


class DocumentError(Exception):
    """A file that is not of this YAML: `place` is where it stops being so, the text is the way out."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(text)
        self.place = place
        self.text = text


class Document(NamedTuple):
    """Plain data, and the place of every entry by its path (keys and indexes joined by dots)."""

    data: object
    places: dict[str, Place]

    def place_of(self, path: str) -> Place:
        """Where the entry at `path` stands; of one that is absent, where the nearest one around it stands."""
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places.get(path, Place(1, 1))


def read_document(raw: bytes) -> Document:
    """The one document in these bytes. Raises DocumentError, with the place, for anything else."""
    text = _decoded(raw)
    reader = YAML(typ="safe", pure=True)
    reader.Scanner = _ShallowScanner
    try:
        return _Builder().fed(reader.parse(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(mark) if isinstance(mark, StringMark) else Place(1, 1)
        raise DocumentError(place, f"not YAML: {error.problem or error.context}") from error
    except (YAMLError, ValueError, OverflowError) as error:
        # ruamel reports an escape above U+10FFFF by the ValueError of chr(), with no mark.
        raise DocumentError(Place(1, 1), f"not YAML: {str(error).splitlines()[0][:120]}") from error


def _decoded(raw: bytes) -> str:
    """The text of the file, without a byte order mark; DocumentError at the first byte that is not UTF-8 text."""
    if len(raw) > MAX_BYTES:
        raise DocumentError(Place(1, 1), f"the file has {len(raw)} bytes, the limit is {MAX_BYTES}: make it smaller")
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        raise DocumentError(
            _end_of(before), f"byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8"
        ) from error
    hidden = _HIDDEN_IN_FILE.search(text)
    if hidden is not None:
        raise DocumentError(
            _end_of(text[: hidden.start()]), f"character U+{ord(hidden.group()):04X} is not allowed: remove it"
        )
    return text


def _end_of(text: str) -> Place:
    """The place just after this text."""
    return Place(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)


def _place(mark: StringMark) -> Place:
    return Place(mark.line + 1, mark.column + 1)


class _ShallowScanner(Scanner):
    """ruamel's scanner, but of no deeper brackets: it looks a thousand of them ahead for a key, at each of them."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803, ANN401 - ruamel's names
        if len(self.flow_context) >= MAX_DEPTH:
            raise _too_deep(_place(self.reader.get_mark()))
        super().fetch_flow_collection_start(TokenClass, to_push)


def _too_deep(place: Place) -> DocumentError:
    return DocumentError(place, f"nested deeper than {MAX_DEPTH} levels: flatten it")


class _Level:
    """A collection that is being read: the container, its path, and the key that waits for its value."""

    __slots__ = ("container", "key", "path")

    def __init__(self, container: dict[str, Any] | list[Any], path: str) -> None:
        self.container = container
        self.path = path
        self.key: str | None = None


class _Builder:
    """Plain data from events, refusing as early as an event allows."""

    def __init__(self) -> None:
        self._levels: list[_Level] = []
        self._places: dict[str, Place] = {}
        self._data: object = None
        self._documents = 0
        self._nodes = 0

    def fed(self, events: Any) -> Document:  # noqa: ANN401 - ruamel leaves its stream of events untyped
        """The document made of all events."""
        for event in events:
            if isinstance(event, DocumentStartEvent):
                self._begin(event)
            elif isinstance(event, NodeEvent):
                self._node(event)
            elif isinstance(event, CollectionEndEvent):
                self._levels.pop()
        if not self._documents:
            raise DocumentError(Place(1, 1), "the file is empty: write a contract")
        return Document(self._data, self._places)

    def _begin(self, event: DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            raise DocumentError(_place(event.start_mark), "a second document begins: one file holds one contract")
        if event.tags or event.version not in (None, (1, 2)):
            raise DocumentError(
                _place(event.start_mark), "directives are not allowed: remove the lines that begin with %"
            )

    def _node(self, event: NodeEvent) -> None:
        place = _place(event.start_mark)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise DocumentError(place, f"more than {MAX_NODES} entries: make the file smaller")
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise DocumentError(place, "anchors and aliases (& and *) are not allowed: write the value out")
        if getattr(event, "ctag", None) is not None:
            raise DocumentError(place, "tags (!) are not allowed: write the plain value")
        level = self._levels[-1] if self._levels else None
        if level is not None and isinstance(level.container, dict) and level.key is None:
            self._take_key(level, level.container, event, place)
            return
        path = self._path(level)
        self._places.setdefault(path, place)
        if isinstance(event, ScalarEvent):
            self._put(level, _scalar(event, place))
            return
        assert isinstance(event, (MappingStartEvent, SequenceStartEvent))
        container: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        self._put(level, container)
        if len(self._levels) >= MAX_DEPTH:
            raise _too_deep(place)
        self._levels.append(_Level(container, path))

    def _take_key(self, level: _Level, mapping: dict[str, Any], event: Event, place: Place) -> None:
        key = _scalar(event, place) if isinstance(event, ScalarEvent) else None
        if not isinstance(key, str):
            raise DocumentError(place, "a key is text: write it in quotes if it only looks like a number or a word")
        if key in mapping:
            raise DocumentError(place, f"the key {key[:60]!r} stands here a second time: remove one")
        level.key = key
        self._places.setdefault(self._path(level), place)

    def _path(self, level: _Level | None) -> str:
        """The path of the entry that comes next."""
        if level is None:
            return ""
        part = level.key if isinstance(level.container, dict) else str(len(level.container))
        return f"{level.path}.{part}" if level.path else str(part)

    def _put(self, level: _Level | None, value: object) -> None:
        if level is None:
            self._data = value
        elif isinstance(level.container, list):
            level.container.append(value)
        else:
            assert level.key is not None
            level.container[level.key] = value
            level.key = None


def _scalar(event: ScalarEvent, place: Place) -> object:
    """The value of a scalar: text when quoted, else by the 1.2 core schema."""
    text = event.value
    if event.style:
        return _text(text, place)
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise DocumentError(
                place, f"a number of {len(text)} characters: {_MAX_DIGITS} are enough for anything here"
            )
        return int(text, 0) if _BASED.fullmatch(text) else int(text)
    if _NOT_FINITE.fullmatch(text):
        raise DocumentError(place, f"{text} is not a number that counts anything: write a finite one")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise DocumentError(place, f"{text[:40]} is beyond all numbers: write a finite one")
        return number
    return _text(text, place)


def _text(text: str, place: Place) -> str:
    """Text without hidden characters; two escaped halves of a surrogate pair, as JSON writes them, become one."""
    hidden = _HIDDEN_IN_TEXT.search(text)
    if hidden is not None and "\ud800" <= hidden.group() <= "\udfff":
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        hidden = _HIDDEN_IN_TEXT.search(text) or re.search("\ufffd", text)
    if hidden is not None:
        raise DocumentError(place, f"character U+{ord(hidden.group()):04X} is not allowed in text: remove it")
    return text
