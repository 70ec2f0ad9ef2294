"""franz-go's tests of its client, run against a broker: groups, transactions, offsets, patterns.

They come from the Go module cache with the module that the programs in franz-go/ use. Everything in the package runs,
except the tests that are named here.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from millrace.broker import Broker

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
MODULE = Path(__file__).parent / "franz-go"
BUILD = MODULE.parent.parent.parent / "build" / "conformance" / "kgo"

#: Tests that are not run.
LEFT_OUT = {
    "TestConsumeRegexShareSkipsInternal": "share groups",
    "TestShareGroup": "share groups",
    "TestShareGroupETL": "share groups",
    "TestShareGroupAckOnClose": "share groups",
    "TestShareGroupOffsetsAdmin": "share groups",
}

#: Tests that run against a broker that asks for SCRAM. Without one they leave themselves out.
LOGINS = {"TestSCRAMAuth", "TestSCRAMAuthBadCredentials"}
#: Tests that leave themselves out.
NOT_ASKED_FOR = {*LOGINS, "TestIssueProduceBrokerTooOldFailsRecords"}  # which needs a broker older than Kafka 0.11

#: The test of pipelines of groups with transactions runs by itself, with fewer records.
TRANSACTIONS = "TestTxnEtl"
#: Number of records that pipelines move through their chains of groups.
RECORDS = 100_000
RECORDS_IN_TRANSACTIONS = 20_000
#: Balancers of the chains.
CHAINS = {"range", "cooperative-sticky", "cooperative-sticky/static", "range/848", "sticky/848", "sticky/848/static"}


def outcomes(output: str, word: str) -> set[str]:
    """Return the tests that have this word in the output."""
    lines = (line.split() for line in output.splitlines())
    return {words[2] for words in lines if words[:2] == ["---", f"{word}:"]}


def run(bootstrap: str, records: int, name: str, choice: str, **variables: str) -> str:
    """Run the tests that an option of `go test` chooses; return the output, which has no failure."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for each in ("go.mod", "go.sum"):
        shutil.copy(MODULE / each, BUILD)
    done = subprocess.run(
        ["go", "test", "-mod=readonly", "-count=1", "-v", "-timeout=8m", choice, PACKAGE],
        cwd=BUILD,
        env=os.environ
        | {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(records), "KGO_LOG_LEVEL": "none"}
        | variables,
        capture_output=True,
        text=True,
        timeout=800,
    )
    path = BUILD / f"{name}.txt"
    path.write_text(done.stdout + done.stderr)
    assert outcomes(done.stdout, "FAIL") == set(), f"see {path}"
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_the_clients_own_tests_pass(bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    need("go")
    skip = "^(" + "|".join([*LEFT_OUT, TRANSACTIONS]) + ")$"
    output = run(bootstrap, RECORDS, layout, f"-skip={skip}")
    assert outcomes(output, "SKIP") == NOT_ASKED_FOR
    others = {"TestGroupSimple/classic", "TestGroupSimple/848", "TestConsumeRegex", "Test848RegexBrokerResolves"}
    assert outcomes(output, "PASS") >= {f"TestGroupETL/{chain}" for chain in CHAINS} | others


def test_the_clients_own_tests_of_transactions_pass(bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    need("go")
    output = run(bootstrap, RECORDS_IN_TRANSACTIONS, f"{layout}-transactions", f"-run=^{TRANSACTIONS}$")
    assert outcomes(output, "PASS") == {TRANSACTIONS} | {f"{TRANSACTIONS}/{chain}" for chain in CHAINS}


@pytest.mark.parametrize("bits", ["256", "512"])
def test_the_clients_own_tests_of_logins_pass(need: Callable[..., None], bits: str) -> None:
    need("go")
    choice = f"-run=^({'|'.join(LOGINS)})$"
    with Broker(users={"alice": "alice-secret"}) as broker:
        servers = broker.bootstrap_servers
        given = {"KGO_TEST_SCRAM_SEEDS": servers, "KGO_TEST_SCRAM": f"alice:alice-secret:{bits}"}
        output = run(servers, RECORDS, f"logins-{bits}", choice, **given)
    assert outcomes(output, "PASS") == LOGINS
