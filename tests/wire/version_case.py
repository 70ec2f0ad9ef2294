"""A case of test_every_version.py: the request of an API in a version, and the check of its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: (version, topic id of "single") -> request
Ask = Callable[[int, bytes], Any]
#: (version, response, topic id) -> asserts
Check = Callable[[int, Any, bytes], None]
Case = tuple[Ask, Check]
