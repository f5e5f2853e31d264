"""Whether an address on this machine answers with 200: for probes in containers that have no curl."""

import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=4) as answer:  # noqa: S310 - the manifest says which address
        sys.exit(answer.status != 200)
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code}: {error.read(512).decode(errors='replace').strip()}")
except (OSError, ValueError) as error:
    sys.exit(str(error))
