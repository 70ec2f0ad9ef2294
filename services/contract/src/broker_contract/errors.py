"""Errors of the contract package.

ContractError
└── FrameError   a data frame is not laid out as broker_contract/frames.py says (the peer's fault)
"""


class ContractError(Exception):
    """Root of this package's exceptions."""


class FrameError(ContractError):
    """A data frame is not laid out as the contract says."""
