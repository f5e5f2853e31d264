#!/bin/sh
# Resolves pyproject.toml and build.in into run.txt and dev.txt, every file pinned by hash.
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
        --output-file "$out.new" "$@" requirements/build.in pyproject.toml
    {
        echo "# $title"
        echo "# Written by 'make lock' from pyproject.toml and requirements/build.in; not by hand."
        cat "$out.new"
    } >"$out"
    rm "$out.new"
}

# What is pinned already stays, unless UPGRADE=1 asks for the newest.
keep() {
    if [ -z "${UPGRADE:-}" ] && [ -f "$1" ]; then cp "$1" "$1.new"; fi
}

keep requirements/run.txt
compile requirements/run.txt "What Fairlease needs to run."
keep requirements/dev.txt
compile requirements/dev.txt "What Fairlease needs to run, to be checked and to be tested." \
    --extra dev --constraint requirements/run.txt
