"""RemoveRaftVoter (81): take a voter out of the metadata quorum (KIP-853)."""

from protocol_lib.schema import Int16, Int32, Uuid, message


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
