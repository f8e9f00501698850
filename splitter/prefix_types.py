"""The types of the model prefix: the start of a model's forward that the worker runs.

def forward(self, features, prices):            Prefix: statements 0 to 2, `rows` in the place of `features`
    rows = hashed(features) % self.buckets      PrefixHead: the same in a loader builder of the worker, with `buckets`
    return self.top(self.table(rows), prices)   Rename: the parameter is `rows` in the trainer
"""

from __future__ import annotations

from dataclasses import dataclass

from splitter.ir import Fragment, Span

WHOLE = -1  # the place that is all of a batch


@dataclass(frozen=True)
class Constant:
    """A value that the start of forward reads from its model: `edges = torch.tensor([18, 25])`.

    `span` is where the text stands in the source, when it stands there as it is. `attribute` is its name in the model.
    """

    attribute: str
    name: str
    text: str
    span: Span | None = None


@dataclass(frozen=True)
class PrefixHead:
    """The start of a model's forward as the function `head` of a loader builder.

    `takes` are the lines that take its inputs out of the parameter `batch`, `gives` is the batch with its results in their places; `swaps`
    has what stands in the body in place of the model's attributes.
    """

    constants: tuple[Constant, ...]
    batch: str
    takes: tuple[str, ...]
    body: Fragment
    swaps: tuple[tuple[Span, str], ...]
    gives: str


@dataclass(frozen=True)
class PrefixFeed:
    """A feed whose batches the model gets: where in a batch (or WHOLE) the inputs are, by parameter.

    `device`: the script moves them to one first.
    """

    feed: str
    places: tuple[tuple[str, int | str], ...]
    device: bool
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class Prefix:
    """The first statements of a model's forward, which the worker can run. `results`: each with the parameter whose place it takes.

    `rank`: how many longer ones there are, which may turn out to give other bits.
    """

    rank: int
    module: str
    owner: str
    body: Fragment
    statements: tuple[int, int]
    results: tuple[tuple[str, str], ...]
    feeds: tuple[PrefixFeed, ...]

    @property
    def moved(self) -> dict[str, tuple[int | str, ...]]:
        """For each feed, the places of a batch that have results of forward in them."""
        replaced = {parameter for _, parameter in self.results}
        return {feed.feed: tuple(key for name, key in feed.places if name in replaced) for feed in self.feeds}


@dataclass(frozen=True)
class PrefixTried:
    """What came of a prefix for one feed, on a recorded batch: what crosses for a sample with and without it, or why it can't move.

    `where`: the line of the model's file that the reason is about, 0 for none.
    """

    before: int = 0
    after: int = 0
    reason: str | None = None
    where: int = 0


@dataclass(frozen=True, order=True)
class Rename:
    """Trainer: the name of a parameter, or of a keyword of a call, becomes another."""

    module: str
    span: Span
    name: str
