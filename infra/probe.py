"""Whether an address on this machine answers with 200: for probes in containers that have no curl."""

import sys
import urllib.error
import urllib.request

# Containers are often told of a proxy, and it is never the way to this machine.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with direct.open(sys.argv[1], timeout=4) as answer:
        sys.exit(answer.status != 200)
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code}: {error.read(512).decode(errors='replace').strip()}")
except (OSError, ValueError) as error:
    sys.exit(str(error))
