"""The `java` program that Spark's scripts start. Without a fitting one, their words say nothing to a user.

It is `$JAVA_HOME/bin/java`, or the first one on the PATH (spark-class).
"""

import os
import re
import shutil
import subprocess

from spark_etl.errors import ConfigError, EtlError, RunError

RELEASE_MIN = 17  # of Spark 4.0
_NEEDED = f"Spark needs Java {RELEASE_MIN} or later"
_ANSWER_SECONDS = 10


def program() -> str:
    """Return the path of the program. ConfigError: there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if found is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "there is no java on the PATH"
        raise ConfigError(f"{_NEEDED}, and {where}: install it, or set JAVA_HOME to its folder")
    return found


def ended() -> EtlError:
    """Return why a JVM has ended before Spark was ready: ConfigError for an old one, RunError if only it knows."""
    found = program()
    try:
        done = subprocess.run(
            [found, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return ConfigError(f"{_NEEDED}, and {found} cannot be run: {error}")
    version = re.search(r'version "([0-9]+)[^"]{0,40}"', done.stderr)
    if version is not None and int(version[1]) < RELEASE_MIN:
        return ConfigError(f"{_NEEDED}, and {found} is {version[0]}: install it, or set JAVA_HOME to its folder")
    return RunError(f"the JVM of {found} ended before Spark was ready: it wrote the reason above this line")
