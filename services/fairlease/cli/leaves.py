"""How a word of the command line is made: a command, which a module carries out, or a group of commands."""

import argparse

from fairlease.cli.parser import Parser

Verbs = argparse._SubParsersAction  # noqa: SLF001 - argparse gives this type no public name


def command(verbs: "Verbs[Parser]", word: str, module: str, parents: list[Parser], *, about: str) -> Parser:
    """One command, carried out by `module`."""
    leaf = verbs.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".", parents=parents)
    leaf.set_defaults(module=module, leaf=leaf)
    return leaf


def group(verbs: "Verbs[Parser]", word: str, about: str) -> "Verbs[Parser]":
    """A word that needs a second one, such as `job show`."""
    branch = verbs.add_parser(word, help=about, description=about[0].upper() + about[1:] + ".")
    return branch.add_subparsers(title="commands", dest="action", metavar="COMMAND", required=True)
