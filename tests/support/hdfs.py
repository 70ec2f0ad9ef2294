"""Hadoop's file system on loopback: a name node and a data node in one Java process, with their files in a folder.

def test_something(hdfs):
    hdfs.folder("lake")  # hdfs://127.0.0.1:…/lake
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from support import maven

MODULE = Path(__file__).with_name("hdfs.xml")
HEAP = "-Xmx512m"


class Hdfs:
    """One cluster; `close` ends it."""

    def __init__(self, folder: Path) -> None:
        pyspark = importlib.util.find_spec("pyspark")
        assert pyspark is not None
        assert pyspark.origin is not None
        spark = Path(pyspark.origin).parent / "jars"
        (bridge,) = spark.glob("py4j-*.jar")
        jars = [*maven.jars(MODULE).glob("*.jar"), *spark.glob("*.jar")]
        port, token = launch_gateway(
            classpath=":".join(map(str, jars)), jarpath=str(bridge), javaopts=[HEAP], die_on_exit=True, enable_auth=True
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        jvm: Any = self._gateway.jvm
        hadoop = jvm.org.apache.hadoop
        conf = hadoop.conf.Configuration()
        conf.set("hdfs.minidfs.basedir", str(folder))
        conf.set("dfs.replication", "1")
        conf.set("dfs.permissions.enabled", "false")
        builder = getattr(hadoop.hdfs, "MiniDFSCluster$Builder")(conf)
        self._cluster = builder.numDataNodes(1).build()
        self._cluster.waitActive()
        self.url = f"hdfs://127.0.0.1:{self._cluster.getNameNodePort()}"

    def folder(self, name: str) -> str:
        return f"{self.url}/{name}"

    def close(self) -> None:
        self._cluster.shutdown()
        self._gateway.shutdown()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    maven.need_java()
    cluster = Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield cluster
    cluster.close()
