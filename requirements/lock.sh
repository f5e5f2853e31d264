#!/bin/sh
# Resolves pyproject.toml and build.in into run.txt and dev.txt, and audit.in into audit.txt, every file pinned by hash.
# Run it as `make lock`. The result must serve CPython 3.11 to 3.13 on x86_64 and aarch64: resolve
# under 3.11, whose set of packages is the largest, and read the diff before committing it.
# No index, no option and no path of this machine may land in the files (tests/house looks).
set -eu

cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
tools=".venv-lock"
[ -x "$tools/bin/pip-compile" ] || {
    "$python" -m venv "$tools"
    "$tools/bin/python" -m pip --disable-pip-version-check install --quiet "pip-tools==7.6.2"
}

compile() {
    out="$1"
    title="$2"
    shift 2
    "$tools/bin/pip-compile" --quiet --generate-hashes --strip-extras --no-header \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
        --output-file "$out.new" "$@"
    {
        echo "# $title"
        echo "# Written by 'make lock'; not by hand."
        cat "$out.new"
    } >"$out"
    rm "$out.new"
}

# What is pinned already stays, unless UPGRADE=1 asks for the newest.
keep() {
    if [ -z "${UPGRADE:-}" ] && [ -f "$1" ]; then cp "$1" "$1.new"; fi
}

keep requirements/run.txt
compile requirements/run.txt "What Fairlease needs to run." requirements/build.in pyproject.toml
keep requirements/dev.txt
compile requirements/dev.txt "What Fairlease needs to run, to be checked and to be tested." \
    --extra dev --constraint requirements/run.txt requirements/build.in pyproject.toml
# In an environment of its own: what asks about packages must not decide which of them are tested.
keep requirements/audit.txt
compile requirements/audit.txt "What asks whether the locked packages have known holes." --allow-unsafe requirements/audit.in
