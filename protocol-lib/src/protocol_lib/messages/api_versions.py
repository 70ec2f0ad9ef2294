"""ApiVersions (18): which APIs and versions the broker serves; the first request on every connection.

Versions 0-2 of the request are the same. 3 is flexible and names the client software. In 4 a supported feature's
minimum version may be 0. 5 says which node of which cluster the client believes it talks to (KIP-1242).
"""

from protocol_lib.schema import Boolean, Int16, Int32, Int64, message, struct, wire


@message(api_key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    #: letters, digits, dots and dashes (KIP-511)
    client_software_name: str = wire("3+", default="")
    client_software_version: str = wire("3+", default="")
    cluster_id: str | None = wire("5+", default=None)
    #: -1 for any
    node_id: Int32 = wire("5+", default=-1)


@struct
class ApiVersion:
    """One API, and the range of its versions that is served."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: str
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    name: str
    max_version_level: Int16
    min_version_level: Int16


@message(api_key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """The answer. Its header is always version 0, for every version of the body, so that any client can read it."""

    #: error; with UNSUPPORTED_VERSION the body is of version 0, and names the versions of ApiVersions itself
    error_code: Int16
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: Int32 = wire("1+", default=0)
    supported_features: tuple[SupportedFeatureKey, ...] = wire("3+", tag=0, default=())
    #: -1 while it is not known
    finalized_features_epoch: Int64 = wire("3+", tag=1, default=-1)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire("3+", tag=2, default=())
    zk_migration_ready: Boolean = wire("3+", tag=3, default=False)
