"""UpdateFeatures (57): raise or lower the finalized level of features (KIP-584).

1 has upgrade types and can validate only, 2 answers without results per feature.
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, message, struct, wire


@struct
class FeatureUpdateKey:
    """A level below 1 deletes the feature."""

    feature: str
    max_version_level: Int16
    allow_downgrade: Boolean = wire("0", default=False)
    #: 1 upgrade only, 2 downgrade that loses nothing, 3 any downgrade
    upgrade_type: Int8 = wire("1+", default=1)


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = wire(default=60000)
    feature_updates: tuple[FeatureUpdateKey, ...]
    validate_only: Boolean = wire("1+", default=False)


@struct
class UpdatableFeatureResult:
    feature: str
    error_code: Int16
    error_message: str | None


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: tuple[UpdatableFeatureResult, ...] = wire("0-1", default=())
