"""The user of a certificate is the one that Apache Kafka sees: Java's text of the subject, shortened by Kafka's rules.

The tables are what Java and Kafka say. A test asks them again.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from gateway_svc.principal_rules import PrincipalRules
from service_chassis.x509 import read_certificate, subject_text
from support.certificates import Authority
from support.kafka_classes import KafkaClasses

UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BMP, BITS, INTEGER = 0x0C, 0x13, 0x14, 0x16, 0x1C, 0x1E, 0x03, 0x02
CN, OU, ORG, C, DC, UID, EMAIL, SERIAL, STREET, TITLE = (
    "550403", "55040b", "55040a", "550406", "0992268993f22c640119", "0992268993f22c640101", "2a864886f70d010901",
    "550405", "550409", "55040c",
)  # fmt: skip


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def attribute(identifier: str, value: bytes, tag: int = UTF8) -> bytes:
    return element(0x30, element(0x06, bytes.fromhex(identifier)) + element(tag, value))


def name(*parts: bytes | tuple[bytes, ...]) -> bytes:
    """Return the DER of a name of parts, each with one attribute or several."""
    sets = (element(0x31, b"".join(part if isinstance(part, tuple) else (part,))) for part in parts)
    return element(0x30, b"".join(sets))


SUBJECTS = [
    (name(), ""),
    (name(attribute(CN, b"alice")), "CN=alice"),
    (name(attribute(C, b"DE", PRINTABLE), attribute(ORG, b"Ex"), attribute(CN, b"a")), "CN=a,O=Ex,C=DE"),
    (name((attribute(CN, b"a"), attribute(OU, b"b")), attribute(ORG, b"c")), "O=c,CN=a+OU=b"),
    (name(attribute(UID, b"u"), attribute(DC, b"com", IA5), attribute(STREET, b"s")), "STREET=s,DC=com,UID=u"),
    (name(attribute(EMAIL, b"a-mail", IA5)), "1.2.840.113549.1.9.1=#1606612d6d61696c"),
    (name(attribute(SERIAL, b"7", PRINTABLE)), "2.5.4.5=#130137"),
    (name(attribute(TITLE, b"x" * 200)), "2.5.4.12=#0c81c8" + "78" * 200),
    (name(attribute(CN, b',=+<>#;"\\')), 'CN=\\,\\=\\+\\<\\>\\#\\;\\"\\\\'),
    (name(attribute(CN, b"  two  ")), "CN=\\ \\ two\\ \\ "),
    (name(attribute(CN, b"   ")), "CN=\\ \\ \\ "),
    (name(attribute(CN, b"in the middle")), "CN=in the middle"),
    (name(attribute(CN, b"\rline\n")), "CN=\\\rline\n"),
    (name(attribute(CN, b"")), "CN="),
    (name(attribute(CN, b"n\0l")), "CN=n\\00l"),
    (name(attribute(CN, "Zoë 学".encode())), "CN=Zoë 学"),
    (name(attribute(CN, b"\x01\x02", BITS)), "CN=#03020102"),
    (name(attribute(CN, b"\x07", INTEGER)), "CN=#020107"),
]


@pytest.mark.parametrize(("der", "text"), SUBJECTS, ids=range(len(SUBJECTS)))
def test_subjects(der: bytes, text: str) -> None:
    assert subject_text(der) == text


ODD_TEXTS = [
    name(attribute(CN, "bmp".encode("utf-16-be"), BMP)),
    name(attribute(CN, "uni".encode("utf-32-be"), UNIVERSAL)),
    name(attribute(CN, "é".encode("latin-1"), T61)),
    name(attribute(CN, b"\xff\xfe")),
    name(attribute(CN, b"*@&_", PRINTABLE)),
]


@pytest.mark.conformance
@pytest.mark.parametrize("der", [*(der for der, _ in SUBJECTS), *ODD_TEXTS], ids=lambda der: der.hex()[:40])
def test_subjects_are_those_of_java(kafka_classes: KafkaClasses, der: bytes) -> None:
    assert subject_text(der) == kafka_classes.jvm.javax.security.auth.x500.X500Principal(der).getName()


def test_a_certificate_has_its_subject_and_its_dates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("c", "/CN=alice", days=("20200102030405Z", "20491231235959Z"))
    found = read_certificate(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text()))
    assert (found.subject, found.valid_from, found.valid_until) == ("CN=alice", 1577934245, 2524607999)
    later = authority.issue("d", "/CN=alice", days=("20500101000000Z", "21000101000000Z"))
    found = read_certificate(ssl.PEM_cert_to_DER_cert(later.certificate.read_text()))
    assert (found.valid_from, found.valid_until) == (2524608000, 4102444800)


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_bytes_that_are_no_certificate(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_certificate(name(attribute(CN, b"x" * 100))[:cut])


SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
RULES = [
    ("DEFAULT", SUBJECT, SUBJECT),
    ("", SUBJECT, SUBJECT),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", SUBJECT, "Duke"),
    ("RULE:^CN=(.*?),OU=Other.*$/$1/, DEFAULT", SUBJECT, SUBJECT),
    ("RULE:^CN=(.*?), *OU=(.*?),.*$/$1@$2/L", SUBJECT, "duke@serviceusers"),
    ("RULE:^.*O=(\\w+).*$/$1/U,DEFAULT", SUBJECT, "ORG"),
    ("RULE:CN=(.)(.*)/$2$1$3/", "CN=ab", "ba$3"),
    ("RULE:CN=(.*)/$12/", "CN=ab", "ab2"),
    ("RULE:CN=(.*)/\\$1\\x$0/", "CN=ab", "$1xCN=ab"),
    ("RULE:.*/n/", "CN=ab", "nn"),
    ("RULE:CN=a\\/b/slash/", "CN=a/b", "slash"),
    ("RULE:CN=(a)|CN=(b)/<$1$2>/", "CN=b", "<b>"),
    (",,DEFAULT,", SUBJECT, SUBJECT),
    ("RULE:CN=(.+)/$01/", "CN=ab", "ab"),
    ("RULE:CN=(\\d+)/$1/", "CN=٣", None),
    ("RULE:CN=x/y/", SUBJECT, None),
]


@pytest.mark.parametrize(("rules", "subject", "expected"), RULES)
def test_rules(rules: str, subject: str, expected: str | None) -> None:
    made = PrincipalRules(rules)
    if expected is None:
        with pytest.raises(ValueError, match="no rule of MILLRACE_SSL_PRINCIPAL_MAPPING_RULES is for"):
            made.name(subject)
    else:
        assert made.name(subject) == expected


@pytest.mark.conformance
@pytest.mark.parametrize(("rules", "subject", "expected"), RULES[2:])
def test_rules_are_those_of_kafka(kafka_classes: KafkaClasses, rules: str, subject: str, expected: str | None) -> None:
    mapper = kafka_classes.named("org.apache.kafka.common.security.ssl.SslPrincipalMapper").fromRules(rules)
    if expected is None:
        with pytest.raises(Exception, match="No rules apply to"):
            mapper.getName(subject)
    else:
        assert mapper.getName(subject) == expected


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ("DEFAULT/L", "'DEFAULT/L' is not RULE:pattern/replacement/[LU] or DEFAULT"),
        ("RULE:a/b", "'RULE:a/b' is not RULE:pattern/replacement/[LU] or DEFAULT"),
        ("RULE:a/b/LU", "'RULE:a/b/LU' is not RULE:pattern/replacement/[LU] or DEFAULT"),
        ("RULE:\\p{Alpha}/b/", "the pattern '\\\\p{Alpha}' cannot be used: bad escape \\p at position 0"),
        ("RULE:[a&&[b]]/b/", "the pattern '[a&&[b]]' cannot be used: Possible set intersection at position 2"),
        ("RULE:(a/b/", "the pattern '(a' cannot be used: missing ), unterminated subpattern at position 0"),
        ("RULE:a/$/", "the replacement '$' has a $ without a number"),
        ("RULE:a/$1/", "the replacement '$1' has $1, and the pattern no group"),
    ],
)
def test_rules_that_end_the_start(rules: str, refused: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        PrincipalRules(rules)
    assert str(error.value) == refused
