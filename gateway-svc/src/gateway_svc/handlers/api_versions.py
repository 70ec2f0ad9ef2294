"""ApiVersions: the APIs this gateway serves.

The answer is read from the handlers' registrations, and announces FEATURES. Below version 4 it leaves out the supported
ones that begin at level 0, which clients of these versions read as an error. The header of the answer is version 0 in
every version. A request of a version that is not served is answered in version 0 with
UNSUPPORTED_VERSION and the range of ApiVersions alone (KIP-511). From version 3 on a client that names itself in other
than letters, digits, "-" and "." is answered INVALID_REQUEST, as Kafka does. From version 5 on a client that believes
to be at another cluster is answered REBOOTSTRAP_REQUIRED (KIP-1242). A client that believes to be at another node of
this one is served, unlike in Kafka. Any gateway serves everything, and to a client, gateways that share an address are
one node.
"""

from __future__ import annotations

import re
from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ClusterContext
from gateway_svc.requests.handler import NOTHING, Handler, WhenClientLeft, with_error

#: Stands for the request when its version is not served, so that its body cannot be read.
UNSUPPORTED: Final = ApiVersionsRequest()

#: Features of the cluster (KIP-584): the lowest level of each, and the highest. That one is in force.
#: In group.version, 1 is the consumer groups of KIP-848. In transaction.version, 2 is the raised epoch at every end of
#: a transaction (KIP-890). In metadata.version, 30 is Kafka 4.3 (MetadataVersion 4.3-IV0), whose behaviour is served.
FEATURES: Final = {"group.version": (0, 1), "metadata.version": (7, 30), "transaction.version": (0, 2)}

_ZERO_FEATURE_VERSION: Final = 4
_SUPPORTED: Final = tuple(
    SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
    for name, (lowest, highest) in FEATURES.items()
)
_SUPPORTED_ABOVE_ZERO: Final = tuple(each for each in _SUPPORTED if each.min_version > 0)
_FINALIZED: Final = tuple(
    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
    for name, (_, level) in FEATURES.items()
)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def serve(call: Call, request: ApiVersionsRequest, context: ClusterContext) -> None:
    error = ErrorCode.NONE
    ranges = context.api_ranges
    if request is UNSUPPORTED:
        error = ErrorCode.UNSUPPORTED_VERSION
        ranges = tuple(each for each in ranges if each[0] == ApiKey.API_VERSIONS)
    elif call.version >= 3 and not (  # KIP-511
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        error, ranges = ErrorCode.INVALID_REQUEST, ()
    elif request.cluster_id is not None and request.cluster_id != context.membership.cluster_id:
        error, ranges = ErrorCode.REBOOTSTRAP_REQUIRED, ()
    versions = tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges)
    if error:
        call.answer(ApiVersionsResponse(error_code=error, api_keys=versions), error)
        return
    response = ApiVersionsResponse(
        error_code=error,
        api_keys=versions,
        supported_features=_SUPPORTED if call.version >= _ZERO_FEATURE_VERSION else _SUPPORTED_ABOVE_ZERO,
        finalized_features_epoch=0,
        finalized_features=_FINALIZED,
    )
    call.answer(response, error)


HANDLER = Handler(
    ApiKey.API_VERSIONS,
    0,
    5,
    serve,
    context=ClusterContext,
    resources=NOTHING,
    refuse=with_error(ApiVersionsResponse, api_keys=()),
    unsupported=UNSUPPORTED,
    when_client_left=WhenClientLeft.SERVE,
)
