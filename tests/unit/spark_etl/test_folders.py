"""The folders of spark_etl."""

from collections import Counter
from pathlib import Path

import spark_etl


def test_no_folder_has_more_than_fifteen_modules() -> None:
    top = Path(spark_etl.__file__).parent
    modules = Counter(path.parent.relative_to(top).as_posix() for path in top.rglob("*.py"))
    assert {folder: number for folder, number in modules.items() if number > 15} == {}
