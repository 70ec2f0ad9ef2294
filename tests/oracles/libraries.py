"""The message classes of other Python libraries, by API and version."""

import functools
import importlib
import warnings
from typing import Any

from protocol_lib.api import APIS
from protocol_lib.schema import message_info
from support.late import Late

aiokafka_api = Late("aiokafka.protocol.api")
kio_index = Late("kio.index")

LIBRARIES = ("kafka-python", "kio", "aiokafka")
#: The mistakes of aiokafka.
WRONG_IN_AIOKAFKA = {
    ("ListOffsetsRequest", 4): "it writes a leader epoch of 64 bits",
    ("ListOffsetsRequest", 5): "it writes a leader epoch of 64 bits",
    ("DescribeAclsRequest", 2): "it does not know that the version is flexible",
    ("DescribeAclsResponse", 2): "it does not know that the version is flexible",
}


@functools.cache
def kafka_python_messages() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
        api_message = importlib.import_module("kafka.protocol.api_message")
    for module in ("sasl", "producer.produce", "producer.transaction", "consumer.fetch", "consumer.group",
                   "consumer.offsets", "metadata.api_versions", "metadata.find_coordinator", "metadata.metadata",
                   "admin.acl", "admin.client_quotas", "admin.cluster", "admin.configs", "admin.groups",
                   "admin.topics", "admin.transactions", "admin.users"):  # fmt: skip
        importlib.import_module(f"kafka.protocol.{module}")
    return {cls.__name__: cls for cls in api_message.ApiMessage.__subclasses__()}


@functools.cache
def aiokafka_messages() -> dict[tuple[int, int, bool], Any]:
    for module in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset", "produce", "transaction"):
        importlib.import_module(f"aiokafka.protocol.{module}")
    found = {}
    for base, is_request in ((aiokafka_api.RequestStruct, True), (aiokafka_api.Response, False)):
        for cls in base.__subclasses__():
            if isinstance(getattr(cls, "API_KEY", None), int) and isinstance(getattr(cls, "API_VERSION", None), int):
                found[cls.API_KEY, cls.API_VERSION, is_request] = cls
    return found


def kio(cls: type, api_key: int, version: int) -> Any:
    load = kio_index.load_request_schema if cls.__name__.endswith("Request") else kio_index.load_response_schema
    try:
        return load(api_key, version)
    except kio_index.KioIndexError:
        return None


def known_to(library: str, cls: type, version: int) -> Any:
    """Return the library's class for a message, or None."""
    api = APIS[message_info(cls).api_key]
    if library == "kafka-python":
        found = kafka_python_messages().get(cls.__name__)
        return found if found and found.min_version <= version <= found.max_version else None
    if library == "kio":
        return kio(cls, api.key, version)
    if (cls.__name__, version) in WRONG_IN_AIOKAFKA:
        return None
    return aiokafka_messages().get((api.key, version, cls is api.request))
