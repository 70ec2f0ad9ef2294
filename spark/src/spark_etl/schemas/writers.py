"""What a run knows of the schemas that records name: of those that fit, and why others are refused.

A record's head names its schema (decode/frames.py). Schemas of heads never change. A head that the registry does not
have stays refused for as long as batches have it. A registry that is away is no answer: `look_up` raises.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

KNOWN_MAX = 200


@dataclass(frozen=True)
class Fitting:
    """A schema whose records can be read: what the decoder of its format needs of it."""

    content: str


@dataclass(frozen=True)
class Unfit:
    """The reason why records of a schema cannot be read."""

    rule: str
    message: str


Found = Fitting | Unfit


@dataclass(eq=False)
class Writers:
    """The schemas of the keys or of the values of a pipeline's records."""

    look_up: Callable[[Collection[bytes]], Mapping[bytes, Found]]
    known: dict[bytes, Fitting] = field(default_factory=dict)
    refused: dict[bytes, Unfit] = field(default_factory=dict)

    def learn(self, heads: Collection[bytes]) -> int:
        """Look the heads of a batch up that are not known; return their number."""
        new = sorted(head for head in heads if head not in self.known and head not in self.refused)
        if not new:
            return 0
        found = self.look_up(new)
        kept = {head: each for head, each in self.refused.items() if head in heads}
        self.refused = {**kept, **{head: each for head, each in found.items() if isinstance(each, Unfit)}}
        self.known |= {head: each for head, each in found.items() if isinstance(each, Fitting)}
        for head in [head for head in self.known if head not in heads][: max(0, len(self.known) - KNOWN_MAX)]:
            del self.known[head]
        return len(new)
