"""UpdateFeatures: the levels are fixed, so that only an update to the level in force succeeds (KIP-584).

Any other is answered INVALID_UPDATE_VERSION for the whole request, with a message that names the feature, as KRaft's
controller does for a level that it does not support.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from gateway_svc.handlers.api_versions import FEATURES
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ClusterContext
from gateway_svc.requests.handler import Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation

#: Upgrade, safe downgrade and unsafe downgrade.
_UPGRADE_TYPES: Final = (1, 2, 3)
#: The last version whose answer has a row for each feature.
_ROWS_VERSION_MAX: Final = 1


def serve(call: Call, request: UpdateFeaturesRequest, context: ClusterContext) -> None:
    code, message, rows = ErrorCode.NONE, None, request.feature_updates if call.version <= _ROWS_VERSION_MAX else ()
    for update in request.feature_updates:
        if (why := _fault(update, context.membership.node_id)) is not None:
            code, rows = ErrorCode.INVALID_UPDATE_VERSION, ()
            message = (
                "The update failed for all features since the following feature had an error: Invalid update version"
                f" {update.max_version_level} for feature {update.feature}. {why}"
            )
            break
    results = tuple(UpdatableFeatureResult(feature=each.feature, error_code=0, error_message=None) for each in rows)
    response = UpdateFeaturesResponse(throttle_time_ms=0, error_code=code, error_message=message, results=results)
    call.answer(response, code)


def _fault(update: FeatureUpdateKey, node_id: int) -> str | None:
    level = update.max_version_level
    if update.upgrade_type not in _UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if update.feature not in FEATURES:
        return f"Local controller {node_id} does not support this feature."
    lowest, in_force = FEATURES[update.feature]
    if not lowest <= level <= in_force:
        return f"Local controller {node_id} only supports versions {lowest}-{in_force}"
    return None if level == in_force else f"It is always {in_force}: this version of the broker has it built in."


HANDLER = Handler(
    ApiKey.UPDATE_FEATURES,
    0,
    2,
    serve,
    context=ClusterContext,
    resources=of_cluster(Operation.ALTER),
    refuse=with_error(UpdateFeaturesResponse, throttle_time_ms=0, error_message=None),
)
