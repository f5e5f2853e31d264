"""A tar read entry by entry, as far as bundles need one: files, directories, links, and long names.

Not the standard library's reader, which is made to understand every tar there ever was: some of its regular
expressions take minutes on a header made to that end, with the interpreter held, and the agent's lease
would run out meanwhile. Here every header costs the same few steps, and what is not understood is refused.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

BLOCK: Final = 512
FILE, DIRECTORY, LINK = b"0", b"5", b"2"
_LONG: Final = b"x"
_MOST_LONG_BYTES: Final = 8 * 1024


class Reading(Protocol):
    """What is read from front to back."""

    def read(self, size: int, /) -> bytes: ...


class TarWrong(ValueError):
    """It is no such tar; the text says what was met."""


class TarEntry(NamedTuple):
    """One entry. The file's bytes, `size` of them, come next in the stream, and are the caller's to read."""

    kind: bytes
    name: str
    target: str
    size: int
    is_executable: bool


def entries(file: Reading) -> Iterator[TarEntry]:
    """Every entry in turn, ended by the block of zeros that a whole tar has.

    Whoever iterates reads all bytes of a file before asking for the next entry; padding is passed over here.
    TarWrong for anything that is no file, directory or link, or not written as it must be.
    """
    said: dict[str, str] = {}
    while True:
        block = _read(file, BLOCK)
        if not any(block):
            return
        size = _number(block[124:136], "size")
        _check_sum(block)
        if block[257:265] != b"ustar\x0000" or any(block[345:500]):
            raise TarWrong("a header is of another format")
        kind = block[156:157]
        if kind == _LONG:
            if said or size > _MOST_LONG_BYTES:
                raise TarWrong("a long name is too long, or said twice")
            said = _records(_read(file, size))
            _read(file, -size % BLOCK)
            continue
        if kind not in (FILE, DIRECTORY, LINK):
            raise TarWrong(f"an entry of kind {kind!r} is neither a file, a directory nor a link")
        name = said.get("path") or _text(block[:100])
        target = said.get("linkpath") or _text(block[157:257])
        said = {}
        if kind != FILE and size:
            raise TarWrong(f"{name[:200]!r} has bytes, and is no file")
        name = name.removesuffix("/") if kind == DIRECTORY else name
        yield TarEntry(kind, name, target, size, bool(_number(block[100:108], "mode") & 0o100))
        _read(file, -size % BLOCK)


def _read(file: Reading, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise TarWrong("it is cut short")
    return data


def _text(field: bytes) -> str:
    return _decoded(field.split(b"\0", 1)[0])


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise TarWrong("a name is not UTF-8") from error


def _number(field: bytes, what: str) -> int:
    digits = field.rstrip(b"\0 ")
    if not digits or digits.translate(None, b"01234567"):
        raise TarWrong(f"a {what} is no octal number")
    return int(digits, 8)


def _check_sum(block: bytes) -> None:
    found = sum(block[:148]) + 8 * 0x20 + sum(block[156:])
    if _number(block[148:156], "checksum") != found:
        raise TarWrong("the checksum of a header does not fit")


def _records(data: bytes) -> dict[str, str]:
    """`LENGTH KEY=VALUE`, line after line; only names may be said so."""
    said: dict[str, str] = {}
    while data:
        length, space, _ = data[:8].partition(b" ")
        if not space or not length.isdigit() or not len(length) + 1 < int(length) <= len(data):
            raise TarWrong("a long name cannot be read")
        line, data = data[len(length) + 1 : int(length)], data[int(length) :]
        key, equals, value = line.partition(b"=")
        if not equals or not value.endswith(b"\n") or key not in (b"path", b"linkpath"):
            raise TarWrong(f"a header says {key[:40]!r}, which a bundle does not need")
        said[key.decode()] = _decoded(value[:-1])
    return said
