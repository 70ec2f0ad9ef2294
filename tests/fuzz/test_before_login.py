"""Changed conversations of strangers: some thousand frames of the long run, in which nothing may go wrong."""

import asyncio

from fuzz.before_login import predictable, run


def test_strangers_are_refused_or_let_in_by_their_proof(capsys):
    with predictable():
        asyncio.run(run(3_000, 1))
    counted = capsys.readouterr().out
    assert "'User:user': " in counted
    assert "'nobody': " in counted
