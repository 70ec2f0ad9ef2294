"""Connections to PostgreSQL through the JDBC driver in the JVM: for the driver's statements and the executors' rows.

A failure is one line. The SQLSTATE of PostgreSQL says whether the same step may work a moment later.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pydantic import SecretStr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_etl.errors import EtlError, OutputError, RunError
from spark_etl.reasons import java_chain

DRIVER = "org.postgresql.Driver"
BATCH_ROWS = 5_000
CONNECT_SECONDS = 10
#: A statement without an answer for so long is given up and tried again; `?socketTimeout=` in the URL wins.
ANSWER_SECONDS = 600
#: SQLSTATEs, or their classes, of a server that is away, busy, full or being restarted, and of lost races: deadlock,
#: serialization failure, lock or statement timeout, a standby that is not yet the primary.
_TRANSIENT = ("08", "40", "53", "57", "58", "55P03", "25006")
#: SQLSTATEs, or their classes, of rows that a table does not take: data exceptions, broken constraints, two rows with
#: one key, exceptions of triggers. The last two are those of text search and of extensions for a text.
_OF_A_ROW = ("22", "23", "21", "P0", "42601", "XX000")


class RowRefusedError(OutputError):
    """A statement that PostgreSQL refuses for the values of a row. `reason` has the constraint's name."""

    def __init__(self, text: str, state: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.rule = "constraint" if state.startswith(("23", "P0")) else "value"


class Connection:
    """One connection with explicit commits; a failure is an EtlError with the server's reason (`failure`)."""

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

    def rollback(self) -> None:
        with _named():
            self._jdbc.rollback()

    def is_alive(self) -> bool:
        """Return whether the session of the connection still exists."""
        try:
            self.value("SELECT 1")
            self.commit()
        except EtlError:
            return False
        return True

    def close(self) -> None:
        self._jdbc.close()

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
            "socketTimeout": str(ANSWER_SECONDS),
            "tcpKeepAlive": "true",
        }
        if user is not None:
            self._properties["user"] = user
        if password is not None:
            self._properties["password"] = password.get_secret_value()

    @property
    def address(self) -> str:
        """The hosts, ports and name of the database, without options, which may have secrets."""
        return self._url.removeprefix("jdbc:postgresql:").partition("?")[0].strip("/")

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Connect, and roll back at the end if nothing was committed. Raises RunError if no connection is made."""
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def connect(self) -> Connection:
        """Return a connection that the caller closes. Raises RunError if none is made."""
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
        return Connection(jdbc)

    def append(self, rows: DataFrame, table: str) -> None:
        """Write rows by the executors to a table that has their columns, a transaction for each task.

        EtlError: PostgreSQL failed. Another failure is of the rows.
        """
        writer = rows.write.format("jdbc").options(
            url=self._url,
            driver=DRIVER,
            dbtable=table,
            batchsize=str(BATCH_ROWS),
            isolationLevel="READ_COMMITTED",
            reWriteBatchedInserts="true",
            **self._properties,
        )
        with _named():
            writer.mode("append").save()


@contextmanager
def _named() -> Iterator[None]:
    """Turn a failure of JDBC into an EtlError in one line."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        failed = failure(error)
        if failed is None:
            raise
        raise failed from None


def failure(error: BaseException) -> EtlError | None:
    """Return a failure in our terms: RunError if it may pass, OutputError if it stays; None: not of PostgreSQL."""
    chain = java_chain(error)
    thrown = next((each for each in chain if str(each.getClass().getName()).endswith(".PSQLException")), None)
    if thrown is None:
        return None
    root = chain[-1]
    text = f"PostgreSQL: {' '.join(str(thrown.getMessage()).split())}"
    if not root.equals(thrown):
        text = f"{text} ({root.getClass().getSimpleName()}: {' '.join(str(root.getMessage()).split())})"
    state = str(thrown.getSQLState() or "")
    if state.startswith(_OF_A_ROW):
        return RowRefusedError(text, state, _said(thrown))
    if not state.startswith(_TRANSIENT):  # mutant: transient-failure-retried
        return OutputError(text)
    passing = RunError(text)
    passing.transient = True
    return passing


def _said(thrown: Any) -> str:
    """Return the server's message of a PSQLException, without the row, and the name of the constraint."""
    said = thrown.getServerErrorMessage()
    if said is None:
        return " ".join(str(thrown.getMessage()).split())
    text, constraint = " ".join(str(said.getMessage()).split()), said.getConstraint()
    return text if constraint is None or str(constraint) in text else f"{text} ({constraint})"
