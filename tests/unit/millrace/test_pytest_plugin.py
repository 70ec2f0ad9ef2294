"""The fixtures as a project that installed Millrace would use them: the files that docs/testing.md shows."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S))
SAME_BROKER = """
import confluent_kafka.admin


def test_same_broker_all_session(millrace_broker, millrace_bootstrap_servers):
    assert millrace_broker.bootstrap_servers == millrace_bootstrap_servers
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": millrace_bootstrap_servers})
    topics = admin.list_topics(timeout=60).topics
    assert len(topics["orders"].partitions) == 6
    assert [name for name in topics if name.startswith("test-")] != []  # of the test before
"""


def test_fixtures(tmp_path):
    assert list(FILES) == ["conftest.py", "test_orders.py"]
    for name, content in {**FILES, "test_same_broker.py": SAME_BROKER}.items():
        (tmp_path / name).write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].startswith("3 passed")
