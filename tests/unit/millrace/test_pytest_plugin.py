"""The fixtures as a project that installed Millrace would use them."""

import subprocess
import sys

PROJECT = """
import confluent_kafka
import pytest

@pytest.fixture(scope="session")
def millrace_broker_options():
    return {"topics": "mine:2"}

def test_topic_is_there(millrace_broker, millrace_bootstrap_servers):
    assert millrace_broker.bootstrap_servers == millrace_bootstrap_servers
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": millrace_bootstrap_servers})
    assert len(admin.list_topics(timeout=60).topics["mine"].partitions) == 2

def test_same_broker_all_session(millrace_broker):
    assert millrace_broker.kafka_address[1] > 0
"""


def test_fixtures(tmp_path):
    (tmp_path / "test_project.py").write_text("import confluent_kafka.admin\n" + PROJECT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].startswith("2 passed")
