"""Connections to PostgreSQL through the JDBC driver in the JVM: for the driver's statements and the executors' rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession

from spark_etl.errors import OutputError

DRIVER = "org.postgresql.Driver"
BATCH_ROWS = 5_000
CONNECT_SECONDS = 10


class Connection:
    """One connection with explicit commits; a failure is an OutputError with the server's reason."""

    def __init__(self, jdbc: Any) -> None:
        self._jdbc = jdbc

    def execute(self, statement: str, *values: str | int) -> int:
        """Run a statement; return the number of changed rows."""
        with self._prepared(statement, values) as prepared:
            prepared.execute()
            return int(prepared.getUpdateCount())

    def column(self, query: str, *values: str | int) -> list[str | None]:
        """Return the first column of a query's few rows, as texts."""
        return [row[0] for row in self.rows(query, *values)]

    def value(self, query: str, *values: str | int) -> str | None:
        """Return the first column of the first row, None without a row."""
        return next(iter(self.column(query, *values)), None)

    def rows(self, query: str, *values: str | int) -> list[list[str | None]]:
        with self._prepared(query, values) as prepared:
            result = prepared.executeQuery()
            width = result.getMetaData().getColumnCount()
            found = []
            while result.next():
                found.append([result.getString(number + 1) for number in range(width)])
            return found

    def commit(self) -> None:
        with _named():
            self._jdbc.commit()

    @contextmanager
    def _prepared(self, statement: str, values: tuple[str | int, ...]) -> Iterator[Any]:
        with _named():
            prepared = self._jdbc.prepareStatement(statement)
            try:
                for number, value in enumerate(values, 1):
                    (prepared.setLong if isinstance(value, int) else prepared.setString)(number, value)
                yield prepared
            finally:
                prepared.close()


class Database:
    """The address and login of a database. The password is in no message and no plan that Spark prints."""

    def __init__(
        self, session: SparkSession, url: str, user: str | None, password: SecretStr | None, application: str
    ) -> None:
        self._session = session
        self._url = url if url.startswith("jdbc:") else f"jdbc:{url}"
        self._properties = {
            "ApplicationName": application,
            "connectTimeout": str(CONNECT_SECONDS),
            "loginTimeout": str(CONNECT_SECONDS),
            "tcpKeepAlive": "true",
        }
        if user is not None:
            self._properties["user"] = user
        if password is not None:
            self._properties["password"] = password.get_secret_value()

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Connect, and roll back at the end if nothing was committed. Raises OutputError if no connection is made."""
        jvm = self._session._jvm
        assert jvm is not None
        properties = jvm.java.util.Properties()
        for name, value in self._properties.items():
            properties.setProperty(name, value)
        with _named():
            jdbc = jvm.org.postgresql.Driver().connect(self._url, properties)
            if jdbc is None:
                raise OutputError(f"{self._url} is not the address of a PostgreSQL database")
            jdbc.setAutoCommit(False)
        try:
            yield Connection(jdbc)
        finally:
            jdbc.close()

    def append(self, rows: DataFrame, table: str) -> None:
        """Write rows by the executors to a table that has their columns, a transaction for each task."""
        rows.write.format("jdbc").options(
            url=self._url,
            driver=DRIVER,
            dbtable=table,
            batchsize=str(BATCH_ROWS),
            isolationLevel="READ_COMMITTED",
            reWriteBatchedInserts="true",
            **self._properties,
        ).mode("append").save()


@contextmanager
def _named() -> Iterator[None]:
    """Turn a failure of JDBC into an OutputError in one line."""
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        reason = " ".join(str(cause.getMessage()).split())
        raise OutputError(f"PostgreSQL: {reason}") from None
