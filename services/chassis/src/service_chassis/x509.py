"""What a certificate says, read from its DER: its subject as Java writes it, and the time until which it is valid.

The subject is that of Java's `X500Principal.getName()`, by which Apache Kafka knows its clients: RFC 2253, the last
part first. Attributes without a keyword of RFC 2253, and values that are no texts, are written as hexadecimal DER:
`1.2.840.113549.1.9.1=#1613612d6d61696c`. OpenSSL's and other libraries' texts differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

#: Keywords of RFC 2253 by object identifier.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_UTC_TIME: Final = 0x17
_TIMES: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_VERSION: Final = 0xA0
#: The texts that Java writes as such, each as if it were UTF-8: UTF8, Printable, T61, IA5, General and BMP.
_TEXTS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
#: Most characters of a subject: it is matched with patterns and written to logs.
_SUBJECT_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parts of a certificate that are used."""

    subject: str
    #: Seconds since 1970.
    valid_from: float
    valid_until: float


def read_certificate(der: bytes) -> Certificate:
    """Return what a certificate says. It was verified before, or is our own.

    Raises:
        ValueError: it is not the DER of a certificate, or its subject is too long.
    """
    ((_, outer),) = _elements(der)
    (_, signed), *_ = _elements(outer)
    parts = list(_elements(signed))
    if parts and parts[0][0] == _VERSION:
        parts = parts[1:]
    if len(parts) < 5:
        raise ValueError("not a certificate")
    begin, end = _elements(parts[3][1])
    subject = _text(parts[4][1])
    if len(subject) > _SUBJECT_MAX:
        raise ValueError(f"the subject has more than {_SUBJECT_MAX} characters")
    return Certificate(subject, _seconds(*begin), _seconds(*end))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each element."""
    at, end = 0, len(data)
    while at < end:
        if end - at < 2:
            raise ValueError("not a certificate")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            more = size & 0x7F
            size = int.from_bytes(data[at : at + more], "big")
            at += more
        if size > end - at:
            raise ValueError("not a certificate")
        yield tag, data[at : at + size]
        at += size


def _seconds(tag: int, content: bytes) -> float:
    moment = datetime.strptime(content.decode("ascii"), _TIMES.get(tag, "")).replace(tzinfo=UTC)
    if tag == _UTC_TIME and moment.year >= 2050:  # RFC 5280, 4.1.2.5.1
        moment = moment.replace(year=moment.year - 100)
    return moment.timestamp()


def subject_text(der: bytes) -> str:
    """Return the text of a name. Raises ValueError for other bytes."""
    ((_, content),) = _elements(der)
    return _text(content)


def _text(content: bytes) -> str:
    parts = []
    for _, part in _elements(content):
        attributes = []
        for _, attribute in _elements(part):
            (_, identifier), (tag, value) = _elements(attribute)
            attributes.append(_attribute(identifier, tag, value, attribute))
        parts.append("+".join(attributes))
    return ",".join(reversed(parts))


def _attribute(identifier: bytes, tag: int, value: bytes, whole: bytes) -> str:
    number = _dotted(identifier)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        # The value's own element ends the attribute's.
        begin = len(whole) - len(value) - (2 if len(value) < 0x80 else 2 + (len(value).bit_length() + 7) // 8)
        return f"{keyword or number}=#{whole[begin:].hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _dotted(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    both, *others = numbers
    first = min(both // 40, 2)
    return ".".join(map(str, (first, both - 40 * first, *others)))


def _escaped(text: str) -> str:
    """Escape as Java does: special characters, NUL, and each blank at either end."""
    shown = "".join(f"\\{each}" if each in ',=+<>#;"\\' else "\\00" if each == "\0" else each for each in text)
    inner = shown.strip(" \r")
    if not inner:
        return "".join(f"\\{each}" for each in shown)
    begin = len(shown) - len(shown.lstrip(" \r"))
    outer = shown[begin + len(inner) :]
    return "".join(f"\\{each}" for each in shown[:begin]) + inner + "".join(f"\\{each}" for each in outer)
