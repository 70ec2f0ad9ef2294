"""Hadoop's file system on loopback: a name node and a data node in one Java process, with their files in a folder.

def test_something(hdfs):
    hdfs.folder("lake")  # hdfs://127.0.0.1:…/lake
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
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

    @contextmanager
    def held(self, location: str) -> Iterator[None]:
        """Hold a file open for writing, as the only client that may."""
        path = self._gateway.jvm.org.apache.hadoop.fs.Path(location)
        files = self._cluster.getFileSystem()
        if not files.exists(path):
            files.create(path, False).close()
        stream = files.append(path)
        try:
            yield
        finally:
            with suppress(Py4JJavaError):  # another client has taken the lease
                stream.close()

    def take(self, location: str) -> None:
        """Take a file's lease from its client, as another client may a minute after the last sign of it."""
        path = self._gateway.jvm.org.apache.hadoop.fs.Path(location)
        assert self._cluster.getFileSystem().recoverLease(path)

    @contextmanager
    def short_leases(self) -> Iterator[None]:
        """Take each client for dead after a second without a sign of life, which clients give every 30 s."""
        self._cluster.setLeasePeriod(1_000, 3_600_000)
        try:
            yield
        finally:
            self._cluster.setLeasePeriod(60_000, 1_200_000)

    def names(self, location: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        path = self._gateway.jvm.org.apache.hadoop.fs.Path(location)
        files = self._cluster.getFileSystem()
        return [str(each.getPath().getName()) for each in files.listStatus(path)] if files.exists(path) else []

    def copy(self, location: str, folder: Path) -> None:
        """Copy a folder to the local disk."""
        path = self._gateway.jvm.org.apache.hadoop.fs.Path
        self._cluster.getFileSystem().copyToLocalFile(path(location), path(str(folder)))

    def close(self) -> None:
        self._cluster.shutdown()
        self._gateway.shutdown()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    maven.need_java()
    cluster = Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield cluster
    cluster.close()
