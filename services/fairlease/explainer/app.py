"""The wiring of explainer: its rule from core, what it reads, what follows a fold."""

from fairlease.core.world import World
from fairlease.explainer.feed import Feed
from fairlease.explainer.metrics import Figures
from fairlease.explainer.questions import handlers
from fairlease.runtime.past import Past
from fairlease.runtime.service import Service, Shell
from fairlease_schemas.envelope import Record

NAME = "explainer"


def define(shell: Shell) -> Service:
    """The feed after every fold, and the questions; there is nothing to decide."""
    feed = Feed(shell.client, shell.subjects)
    figures = Figures(lambda: shell.is_ready)

    def on_record(world: World, position: int, record: Record) -> None:
        feed.gather(world, position, record)
        figures.count(world, position, record)

    return Service(
        name=NAME,
        prepare=feed.find_place,
        on_record=on_record,
        after_fold=feed.publish,
        questions=handlers(lambda: shell.world, Past(shell.client, shell.subjects).at),
        streams=(shell.subjects.feed_stream,),
        figures=figures.read,
    )
