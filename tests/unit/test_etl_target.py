"""`make etl` collects the folders that have tests of Spark, and no others: the whole suite takes long to collect."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_etl_has_every_folder_with_tests_of_spark() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.etl" in path.read_text()]
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("ETL_TESTS = ")]
    folders = [ROOT / name for name in line.removeprefix("ETL_TESTS = ").split()]
    outside = [path for path in marked if not any(folder in path.parents for folder in folders)]
    assert outside == [Path(__file__)]
    assert [folder for folder in folders if not any(folder in path.parents for path in marked)] == []
