"""The wiring of explainer: its rule from core, what it reads, what follows a fold."""

from fairlease.explainer.feed import Feed
from fairlease.explainer.questions import handlers
from fairlease.runtime.past import Past
from fairlease.runtime.service import Service, Shell

NAME = "explainer"


def define(shell: Shell) -> Service:
    """The feed after every fold, and the questions; there is nothing to decide."""
    feed = Feed(shell.client, shell.subjects)
    return Service(
        name=NAME,
        prepare=feed.find_place,
        on_record=feed.gather,
        after_fold=feed.publish,
        questions=handlers(lambda: shell.world, Past(shell.client, shell.subjects).at),
        streams=(shell.subjects.feed_stream,),
    )
