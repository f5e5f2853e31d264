"""A text that proves who one is and is never shown: seeds, passwords, what an environment keeps secret.

Whatever is made of it by accident, in a message, a line of a log, a traceback with its variables or a structure that
is printed, says `Secret(…)`; whatever would carry it away, JSON, pickle or a join with other text, is refused. The
surprising choice: it is no `str`, because a subclass of one gives its text away to every function of the language
that is written in C. Who needs the text asks for it by name, so that a search for `reveal` finds every place.
"""

import hmac
from typing import Final, NoReturn, Self

SHOWN: Final = "Secret(…)"
"""What is seen of any of them, so that not even its length is told."""


class Secret:
    """One secret text. Two are equal when their texts are; the time of comparing tells nothing of them."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one call that needs it; keep it in no variable that lives on."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(
            self._text.encode(errors="surrogatepass"), other._text.encode(errors="surrogatepass")
        )

    def __hash__(self) -> int:
        return hash(self._text)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _seen: object) -> Self:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not stored and not sent: name the file or variable that holds it instead")

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        self.__getstate__()
