"""AddRaftVoter (80): make a controller a voter of the metadata quorum (KIP-853).

1 can answer before the new set of voters is committed.
"""

from protocol_lib.schema import Boolean, Int16, Int32, UInt16, Uuid, message, struct, wire


@struct
class Listener:
    name: str
    host: str
    port: UInt16


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    #: null not to check it
    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    #: id of the voter's metadata log, from its meta.properties
    voter_directory_id: Uuid
    #: addresses at which the other controllers reach it
    listeners: tuple[Listener, ...]
    ack_when_committed: Boolean = wire("1+", default=True)


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
