"""The features of the cluster, as ApiVersions announces and UpdateFeatures checks them (KIP-584).

Features never change while a broker runs: each is finalized at its highest level.
"""

from __future__ import annotations

from typing import Final

#: Name → lowest and highest supported level. group.version 1 is the consumer groups of KIP-848, transaction.version 2
#: the raised epoch at every end of a transaction (KIP-890).
SUPPORTED: Final = {"group.version": (0, 1), "transaction.version": (0, 2)}
#: Name → level in force.
FINALIZED: Final = {name: highest for name, (_, highest) in SUPPORTED.items()}
#: Number of the state of all finalized features.
EPOCH: Final = 0
