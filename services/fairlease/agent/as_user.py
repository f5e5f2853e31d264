"""A program as another user, for good: `python -I -S as_user.py NAME UID GID PROGRAM WORD…`.

For what the agent does in a user's name outside of his runs (git.py). A program of its own, because the change
cannot be made between fork and exec of a process with threads; and by the keeper's rules: his groups, and no way to
gain rights. Named by its path, as shim.py is.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from fairlease.agent.keeper import NotAllowed, become

    name, uid, gid, *words = sys.argv[1:]
    try:
        become(name, int(uid), int(gid))
    except NotAllowed as error:
        sys.exit(str(error))
    os.execv(words[0], words)  # noqa: S606 - what the agent named, by its whole path
