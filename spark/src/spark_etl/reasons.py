"""The reason of a failure in one line: the root cause of a chain of Java and Python exceptions.

Spark wraps the failure of a task five times; the last cause names the fault that a user can mend. The text of a Java
exception comes from the JVM, so ask before the session is closed. `spark_etl.jvm.session.opened` does so for everything
inside it.
"""

import re
from typing import Any

from spark_etl.errors import EtlError

REASON_CHARACTERS_MAX = 600
CAUSES_MAX = 50
#: The text under which Spark hides the failure of a task that another process ran.
_TASK_FAILURE = re.compile(r"executor [^)]*\): (?P<reason>.*)")


def reason(error: BaseException) -> str:
    """Return the root cause in one line of at most REASON_CHARACTERS_MAX characters. Raises nothing."""
    try:
        return _one_line(_reason(error))
    except Exception as failure:  # the JVM died, and its exceptions with it
        return f"{type(error).__name__} (Spark's JVM gives no details: {type(failure).__name__})"


def java_causes(error: BaseException) -> list[str]:
    """Return the class names of the Java exceptions of a failure, the root cause last."""
    return [str(each.getClass().getName()) for each in java_chain(error)]


def java_chain(error: BaseException) -> list[Any]:
    """Return the Java exceptions of a failure, the root cause last."""
    thrown = _thrown(error)
    return [] if thrown is None else _chain(thrown)


def _reason(error: BaseException) -> str:
    if isinstance(error, EtlError):
        return str(error)
    thrown = _thrown(error)
    if thrown is not None:
        return _java_reason(thrown)
    if error.__cause__ is not None:
        return _reason(error.__cause__)
    return f"{type(error).__name__}: {error}"


def _thrown(error: BaseException) -> Any:
    """Return the Java exception of py4j's or PySpark's exception."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _java_reason(thrown: Any) -> str:
    chain = _chain(thrown)
    named = [each for each in chain if each.getMessage()] or chain
    root = named[-1]
    message = _one_line(str(root.getMessage() or ""))
    hidden = _TASK_FAILURE.search(message)
    if hidden is not None:
        return hidden["reason"]
    name = str(root.getClass().getSimpleName())
    if not message:
        return name
    return message if message.startswith("[") else f"{name}: {message}"  # Spark's own begin with their class: [X]


def _chain(thrown: Any) -> list[Any]:
    chain = [thrown]
    while len(chain) < CAUSES_MAX and (cause := chain[-1].getCause()) is not None:
        chain.append(cause)
    return chain


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= REASON_CHARACTERS_MAX else f"{line[: REASON_CHARACTERS_MAX - 1]}…"
