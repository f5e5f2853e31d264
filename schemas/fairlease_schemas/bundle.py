"""Code bundles: a directory as one plain tar, named by its SHA-256, kept on the bus in pieces (1.13).

`fl.<cell>.bundle.<account>.<digest>.<n>` holds piece n, from 1 on, and at 0 the manifest, which is written
last: a bundle whose manifest is there was uploaded whole. Surprising: nothing is compressed. So the same
directory has the same digest whatever compressor a machine has, and what is unpacked is never larger
than what was fetched and counted; the bus compresses what it stores.
"""

import re
from typing import Final

import msgspec

MAX_BUNDLE_BYTES: Final = 64 * 1024 * 1024
"""Of the whole tar, headers and padding included."""
MAX_BUNDLE_FILES: Final = 20_000
"""Files, directories and links together."""
PIECE_BYTES: Final = 256 * 1024
MAX_NAME_BYTES: Final = 1_024
"""Of a path inside a bundle, and of what a link in it points to."""
KEPT_DAYS: Final = 30
"""How long the bus keeps a bundle."""
FRESH_DAYS: Final = 15
"""A bundle older than this is uploaded again, so that a job may wait for the rest of its time."""
MANIFEST_PIECE: Final = 0
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What piece 0 says: the bundle's bytes, and in how many pieces they are kept."""

    size: int
    pieces: int


def hex_of(bundle: str) -> str:
    """The 64 digits of `sha256:…`, fit for a subject; ValueError for anything else."""
    found = _DIGEST.fullmatch(bundle)
    if found is None:
        raise ValueError(f"{bundle[:80]!r} is no digest of a bundle: sha256: and 64 digits of 0-9 a-f")
    return found[1]
