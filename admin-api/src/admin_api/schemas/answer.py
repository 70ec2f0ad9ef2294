"""The base of all shapes of answers: pydantic builds a shape's serializer at its first use, and not at the import.

There are a hundred of them, and most servers give a few.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A shape of an answer, or of a part of one."""

    model_config = ConfigDict(defer_build=True)
