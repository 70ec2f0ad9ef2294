"""Kafka on the wire: messages of every API and version, framing, record formats. Pure, but for the client: bytes in,
values out.

Where to look:

    errors             Kafka's error codes (values) and this package's exceptions (broken peers, wrong use)
    schema, codec      how a message is declared; decode, encode
    api, headers       the registry of APIs and their versions; request and response headers
    messages.<api>     one file per API, request and response together
    template           messages that differ in a few fields: recognised and filled in without the codec
    framing            cutting a byte stream into frames
    records            records in all formats, compression, conversion, control records
    internal           the records of __consumer_offsets and __transaction_state
    consumer_protocol  the messages of group members to each other, through the coordinator
    plain, scram       SASL PLAIN and SCRAM, tokens and both sides of the exchange
    client             an asyncio client on all of this: producer, consumer, administrator

Nothing is imported here, so a program pays only for the parts that it uses.
"""

__all__ = [
    "api",
    "client",
    "codec",
    "consumer_protocol",
    "errors",
    "framing",
    "headers",
    "internal",
    "messages",
    "plain",
    "records",
    "schema",
    "scram",
    "template",
    "varint",
]
