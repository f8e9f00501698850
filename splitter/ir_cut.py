"""What the compiler says of operations and where they run: the part of `ir` that passes between `trace`, `cut` and `emit`.

Tail, Head        what could move, as far as the text shows        TriedHead, Tried   what samples have shown of it
Landing           where a line can be put in that finishes a batch on its device
Finish, MovedHead what does move                                   Crossing, Profile  the graph with its cut; all that was recorded
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from splitter.ir import Fragment, NamesFrom, Note, Span

if TYPE_CHECKING:
    from splitter.graph import Cut, Graph
    from splitter.prefix_types import PrefixTried


@dataclass(frozen=True)
class Finish:
    """How a tail is parted: the trainer runs the elements from `first` on, and with `half` the second half of the one before.

    `device`: why it can't be done on a batch's device, "" when it can. `on`: where it is done.
    """

    tail: Tail
    first: int
    half: bool
    template: str
    arrays: bool = False
    device: str = field(default="", repr=False, compare=False)
    on: Literal["cpu", "device"] = field(default="cpu", repr=False, compare=False)

    @property
    def edit(self) -> tuple[object, ...]:
        """What it changes in the text of the worker program."""
        return self.tail.container, self.tail.elements, self.first, self.half, self.arrays


@dataclass(frozen=True)
class Tail:
    """A container of transforms in the construction of a moved dataset, `transforms.Compose([...])`, whose end the trainer could run.

    `movable`: as far as the text shows, elements from there on. `halves` are those that can be parted themselves, torchvision's ToTensor.
    `listed`: the elements stand in a list, else they are arguments, as in `nn.Sequential(...)`. `definition`: the function or class that
    the container is made in, whose text the worker program has once, for this builder and those that are `shared`. `values`: what the
    elements are, where those are variables of the definition.

    With `links` it is no container but a chain of operations, `container` the function that has them, and `callee` its name.
    """

    builder: str
    module: str
    container: Span
    callee: str
    elements: tuple[Span, ...]
    movable: int
    halves: tuple[int, ...] = ()
    listed: bool = True
    definition: Span | None = None
    shared: tuple[str, ...] = ()
    values: tuple[Span, ...] = ()
    links: tuple[Link, ...] = ()

    def value(self, element: int) -> Span:
        """The expression that makes an element."""
        return self.values[element] if self.values else self.elements[element]


@dataclass(frozen=True)
class Link:
    """Where the value of a sample goes into an operation of a chain: the expression at `hole`.

    `statement` has the operation, `value` is all of the chain in it, and `target` the name that it gives a value; "" for a return.
    `variable` is a name for the value that goes in.
    """

    hole: Span
    statement: Span
    value: Span
    target: str
    variable: str


@dataclass(frozen=True)
class Tried:
    """What can be parted of a tail with the same bits, on recorded samples: from these elements on, in these halves.

    `template` is the structure of a sample, "{0}" where the tail's result is: "({0}, None)". `arrays`: the halves take numpy arrays.
    `device`: for the first of the elements that are finished, and whether the half before it is, why a batch's device can't do that, or "".
    """

    template: str
    whole: tuple[int, ...]
    half: tuple[int, ...]
    arrays: bool = False
    device: tuple[tuple[int, bool, str], ...] = ()


Keys = tuple[int | str, ...]
ANY = "*"  # a key that a loop doesn't name


@dataclass(frozen=True, order=True)
class Insertion:
    """A line of the trainer behind line `after`, at `column`: `value` gets what has come of it at its device. It has the part of a batch of
    the loader `loader` at `keys`.

    images = splitter_runtime.finish_on_device(images, train_loader, 0)
    """

    module: str
    after: int
    column: int
    value: str
    loader: str
    keys: Keys


@dataclass(frozen=True)
class Landing:
    """Where the part of a batch at `keys` has come to its device, in one loop over the loader of the call `loader`, or why it hasn't, or
    neither when nothing reads it. `keys` None: of all parts.
    """

    loader: Span
    loop: Span
    keys: Keys | None
    line: Insertion | None
    why: Note | None


@dataclass(frozen=True)
class Head:
    """The start of the loop over the batches of a feed: `for images, labels in loader:` and the statements that could move.

    `target` is the batch as the loop takes it, "images, labels"; `parts` are its names, each with the keys that lead to it.
    `unpacking`: statements that only take it apart, which both sides run. `together`: statements that the source can't part.
    `end`: the statement that ended the head, and why; or why there is none. `function`: a free name for its builder.
    """

    feed: str
    module: str
    loop: Span
    target: str
    parts: tuple[tuple[str, Keys], ...] = ()
    unpacking: tuple[Span, ...] = ()
    statements: tuple[HeadStatement, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    end: Note | None = None
    function: str = ""


@dataclass(frozen=True)
class HeadNeeds:
    """What a statement of a loop needs in the worker program beside the batch, and what the trainer sends for it."""

    environment: tuple[str, ...] = ()
    globals: tuple[str, ...] = ()
    body: tuple[Fragment, ...] = ()
    imports: tuple[Fragment, ...] = ()
    definitions: tuple[Fragment, ...] = ()
    local_imports: tuple[NamesFrom, ...] = ()
    modules: tuple[str, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class HeadStatement:
    """A statement at the head of a loop over batches that the worker could run. `reads` and `writes` are names of the batch's parts and
    of temporaries. `after`: statements before it, by number, that must move when it does. `mutates` the batch's own memory.
    `locals`: names that it takes from the function that makes the loader; `names` are all that it has.
    """

    span: Span
    fragment: Fragment
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    after: tuple[int, ...]
    mutates: bool
    locals: tuple[str, ...]
    names: tuple[str, ...]
    needs: HeadNeeds


@dataclass(frozen=True)
class MovedHead:
    """The statements of a head that the worker runs, by number, and how the batch is put together behind them."""

    head: Head
    statements: tuple[int, ...]
    batch: str


@dataclass(frozen=True)
class TriedHead:
    """What came of a head on recorded samples: how a batch is put together again, "[images, labels]", and why statements must stay."""

    batch: str
    stay: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Crossing:
    """The graph of a feed and its cut, with the price of a KiB for which it was chosen, in trainer-microseconds."""

    graph: Graph
    cut: Cut
    price: float


@dataclass(frozen=True)
class Profile:
    """What was recorded by running samples: for each feed, by name, its graph and what came of its tails, or the reason why there is none.

    `key` stands for the text, the arguments and the versions; `price` is what a KiB that crosses was to cost (see `cut`); `prefix` has, by
    feed, what came of the start of the model's forward, the longest first.
    """

    key: str
    price: float
    feeds: tuple[tuple[str, Graph, tuple[Tried | None, ...]], ...]
    reasons: tuple[tuple[str, str], ...] = ()
    heads: tuple[tuple[str, TriedHead], ...] = ()
    prefix: tuple[tuple[str, tuple[PrefixTried, ...]], ...] = ()
