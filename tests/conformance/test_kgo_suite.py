"""franz-go's tests of its client, run against a broker: groups, their balancers, offsets, pauses, patterns.

They come from the Go module cache with the module that the program in franz-go/ uses. Everything in the package runs,
except the tests that are named here.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
MODULE = Path(__file__).parent / "franz-go"
BUILD = MODULE.parent.parent.parent / "build" / "conformance" / "kgo"

#: Tests that are not run.
LEFT_OUT = {
    "TestTxnEtl": "transactions",
    "TestConsumeRegexShareSkipsInternal": "share groups",
    "TestShareGroup": "share groups",
    "TestShareGroupETL": "share groups",
    "TestShareGroupAckOnClose": "share groups",
    "TestShareGroupOffsetsAdmin": "share groups",
}

#: Tests that leave themselves out.
NOT_ASKED_FOR = {
    "TestSCRAMAuth": "needs a broker that asks for SCRAM, named by KGO_TEST_SCRAM",
    "TestSCRAMAuthBadCredentials": "needs a broker that asks for SCRAM, named by KGO_TEST_SCRAM",
    "TestIssueProduceBrokerTooOldFailsRecords": "needs a broker older than Kafka 0.11",
}

#: Number of records that the tests of whole pipelines move through their chains of groups.
RECORDS = 100_000


def outcomes(output: str, word: str) -> set[str]:
    """Return the tests that have this word in the output."""
    lines = (line.split() for line in output.splitlines())
    return {words[2] for words in lines if words[:2] == ["---", f"{word}:"]}


def test_the_clients_own_tests_pass(bootstrap: str, need: Callable[..., None]) -> None:
    need("go")
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum"):
        shutil.copy(MODULE / name, BUILD)
    skip = "^(" + "|".join(LEFT_OUT) + ")$"
    done = subprocess.run(
        ["go", "test", "-mod=readonly", "-count=1", "-v", "-timeout=8m", f"-skip={skip}", PACKAGE],
        cwd=BUILD,
        env=os.environ
        | {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS), "KGO_LOG_LEVEL": "none"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    (BUILD / "output.txt").write_text(done.stdout + done.stderr)

    assert outcomes(done.stdout, "FAIL") == set(), f"see {BUILD / 'output.txt'}"
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert outcomes(done.stdout, "SKIP") == NOT_ASKED_FOR.keys()
    passed = outcomes(done.stdout, "PASS")
    chains = {
        "range",
        "cooperative-sticky",
        "cooperative-sticky/static",
        "range/848",
        "sticky/848",
        "sticky/848/static",
    }
    others = {"TestGroupSimple/classic", "TestGroupSimple/848", "TestConsumeRegex", "Test848RegexBrokerResolves"}
    assert passed >= {f"TestGroupETL/{chain}" for chain in chains} | others
