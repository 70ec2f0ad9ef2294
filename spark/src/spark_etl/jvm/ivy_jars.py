"""The jars that Spark's Ivy has fetched, remembered so that the next session starts without Ivy.

    IVY/millrace-etl-3f9c….json    ["/root/.ivy2.5.2/jars/org.apache.spark_spark-avro_2.13-4.0.0.jar", …]

Ivy resolves the packages at each start, which costs seconds and writes a report to standard error. A list belongs to
one set of packages, and counts only while all of its files are there.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import pyspark
from pyspark import SparkConf

IVY = ".ivy2.5.2"  # Spark's default, in the home folder: MavenUtils.loadIvySettings
LIST_BYTES_MAX = 1 << 20


def resolved(ivy: Path | None, packages: Sequence[str]) -> list[Path]:
    """Return the jars of the packages and of all that they need; none unless an earlier session found them."""
    try:
        with _list(ivy, packages).open("rb") as file:
            jars = [Path(name) for name in json.loads(file.read(LIST_BYTES_MAX))]
    except (OSError, ValueError, TypeError):
        return []
    return jars if all(jar.is_file() for jar in jars) else []


def keep(conf: SparkConf, ivy: Path | None, packages: Sequence[str]) -> None:
    """Remember the jars of a session that Ivy has resolved. A folder that cannot be written changes nothing."""
    if conf.get("spark.jars.packages", "") != ",".join(packages):
        return
    names = (conf.get("spark.jars", "") or "").split(",")
    jars = lacking(Path(name.removeprefix("file://")) for name in names if name)
    kept = _list(ivy, packages)
    partial = kept.with_suffix(".partial")
    with contextlib.suppress(OSError):
        partial.write_text(json.dumps([str(jar) for jar in jars.values()]))
        partial.rename(kept)


def lacking(jars: Iterable[Path]) -> dict[str, Path]:
    """Return those of Ivy's jars that pyspark has not, by their plain name: Ivy's has the organisation before it."""
    own = {jar.name for jar in (Path(pyspark.__file__).parent / "jars").iterdir()}
    named = {jar.name.partition("_")[2]: jar for jar in jars}
    return {name: jar for name, jar in named.items() if name not in own}


def _list(ivy: Path | None, packages: Sequence[str]) -> Path:
    name = sha256(",".join(packages).encode()).hexdigest()[:16]
    return (ivy or Path.home() / IVY).absolute() / f"millrace-etl-{name}.json"
