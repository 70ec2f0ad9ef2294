"""The YAML files that people read: yamllint's default rules, with our line length and spacing."""

from pathlib import Path

import pytest
from yamllint import linter
from yamllint.config import YamlLintConfig

ROOT = Path(__file__).parents[3]
RULES = """
extends: default
rules:
  document-start: disable
  braces: {max-spaces-inside: 0}
  line-length: {max: 150}
"""
FILES = (
    "docker-compose.yml",
    "docker-compose.secured.yml",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "k8s").rglob("*.yaml"))),
)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_tidy(name: str) -> None:
    problems = linter.run((ROOT / name).read_text(), YamlLintConfig(RULES))
    assert [f"{problem.line}: {problem.desc}" for problem in problems] == []
