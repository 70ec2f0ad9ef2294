"""SQL statements over the view `input`: SELECT lists, WHERE, and WITH or subqueries of these.

Refused rows and the place of each row must survive a statement, in one pass over the source. Spark's parser reads the
statement; then each SELECT also passes on the columns that the runner needs, and each WHERE lets rows that are set
aside pass. A statement that would merge, multiply or reorder rows is refused.
"""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_etl.errors import ConfigError

INPUT = "input"
_MEANING = {
    "Aggregate": "aggregates belong to a sink",
    "UnresolvedHaving": "aggregates belong to a sink",
    "Distinct": "use dedupe",
    "Deduplicate": "use dedupe",
    "Join": "use join",
    "UnresolvedJoin": "use join",
    "Generate": "a record stays one row",
    "Window": "a stream has no order of all rows",
    "WithWindowDefinition": "a stream has no order of all rows",
    "Sort": "a stream has no order of all rows",
    "GlobalLimit": "a stream has no order of all rows",
}
NOT_REPEATABLE = "its value differs from try to try of a batch, as that of rand() or uuid() does"


def applied(session: SparkSession, frame: DataFrame, sql: str, kept: tuple[str, ...], aside: str) -> DataFrame:
    """Return the statement's rows with the `kept` columns. Rows for which the expression `aside` holds pass unchanged.

    ConfigError: the statement is wrong, or would merge, multiply or reorder rows.
    """
    jvm: Any = session._jvm
    own: Any = session._jsparkSession
    try:
        tree = own.sessionState().sqlParser().parsePlan(sql)
        rewritten = _Rewriter(jvm, own, frame, kept, aside).rewritten(tree, {})
        result = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(own, rewritten), session)
    except PySparkException as error:
        raise ConfigError(str(error).strip().splitlines()[0]) from None
    _check_shape(result, frame)
    names = [name.lower() for name in result.columns]
    for name in kept:
        if names.count(name) != 1:
            raise ConfigError(f"the statement {'loses' if name not in names else 'makes another'} {name}")
    own_names = [name for name in names if name.startswith("_") and name not in frame.columns]
    if own_names:
        raise ConfigError(f"{own_names[0]}: a column's name starts with a letter")
    if len(set(names)) != len(names):
        raise ConfigError("the statement makes two columns of one name")
    return result


def repeatable(selected: DataFrame) -> bool:
    """Return whether the expressions of the last SELECT have the same values at each try of a batch."""
    plan: Any = selected._jdf.queryExecution().analyzed()
    return all(expression.deterministic() for expression in _items(plan.expressions()))


class _Rewriter:
    def __init__(self, jvm: Any, own: Any, frame: DataFrame, kept: tuple[str, ...], aside: str) -> None:
        self._plans = jvm.org.apache.spark.sql.catalyst.plans.logical
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._unresolved = jvm.org.apache.spark.sql.catalyst.analysis
        self._seq = jvm.PythonUtils.toSeq
        self._parser = own.sessionState().sqlParser()
        self._input = frame.alias(INPUT)._jdf.queryExecution().analyzed()
        self._kept = kept
        self._aside = aside

    def rewritten(self, node: Any, named: dict[str, Any]) -> Any:
        """Return a parsed node with every SELECT and WHERE below it completed. `named`: plans of WITH, by name."""
        match _kind(node):
            case "Project":
                return self._project(node, self.rewritten(node.child(), named))
            case "Filter":
                aside = self._parser.parseExpression(self._aside)
                condition = self._expressions.Or(aside, node.condition())  # mutant: refused-rows-kept
                return self._plans.Filter(condition, self.rewritten(node.child(), named))
            case "SubqueryAlias":
                return node.withNewChildren(self._seq([self.rewritten(node.child(), named)]))
            case "UnresolvedWith":
                for pair in _items(node.cteRelations()):
                    named = {**named, pair._1().lower(): self.rewritten(pair._2(), named)}
                return self.rewritten(node.child(), named)
            case "UnresolvedRelation":
                return self._relation(node, named)
            case kind:
                raise ConfigError(_refusal(kind))

    def _relation(self, node: Any, named: dict[str, Any]) -> Any:
        parts = [part.lower() for part in _items(node.multipartIdentifier())]
        if len(parts) == 1 and parts[0] in named:
            return named[parts[0]]
        if parts != [INPUT]:
            raise ConfigError(f"{'.'.join(parts)}: a statement reads from {INPUT} only; use join for a table")
        return self._input

    def _project(self, node: Any, child: Any) -> Any:
        expressions = _items(node.projectList())
        if any(_kind(expression).startswith("UnresolvedStar") for expression in expressions):
            return node.withNewChildren(self._seq([child]))  # the star has them all
        listed = {_items(e.nameParts())[-1].lower() for e in expressions if _kind(e) == "UnresolvedAttribute"}
        more = [self._parser.parseExpression(f"`{name}`") for name in self._kept if name not in listed]
        return self._plans.Project(self._seq([*expressions, *more]), child)


def _check_shape(result: DataFrame, frame: DataFrame) -> None:
    """Refuse a statement whose analysed plan has more than projections and filters above its input."""
    node: Any = result._jdf.queryExecution().analyzed()
    end = frame._jdf.queryExecution().analyzed()
    while not node.equals(end):
        if _kind(node) not in ("Project", "Filter", "SubqueryAlias"):
            raise ConfigError(_refusal(_kind(node)))
        if not all(expression.deterministic() for expression in _items(node.expressions())):
            raise ConfigError(NOT_REPEATABLE)
        node = node.child()


def _refusal(kind: str) -> str:
    return f"only SELECT, WHERE and WITH are possible, not {kind}" + (
        f" ({_MEANING[kind]})" if kind in _MEANING else ""
    )


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
