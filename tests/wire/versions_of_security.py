"""Cases of test_every_version.py: ACLs, quotas, credentials, tokens and SASL of a broker without security.

test_security_off.py of tests/conformance sends the same requests to Apache Kafka.
"""

from __future__ import annotations

from typing import Any

from protocol_lib.api import ApiKey
from protocol_lib.messages import alter_client_quotas as alter_quotas
from protocol_lib.messages import alter_user_scram_credentials as alter_credentials
from protocol_lib.messages import create_acls, create_delegation_token, delete_acls
from protocol_lib.messages import describe_client_quotas as describe_quotas
from protocol_lib.messages import describe_user_scram_credentials as describe_credentials
from protocol_lib.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol_lib.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol_lib.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol_lib.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from tests.wire.version_case import Case

TOPIC, LITERAL, READ, ANY, ALLOW = 2, 3, 3, 1, 3
EXACT, DEFAULT, SPECIFIED = range(3)


def ask_describe_acls(version: int, _topic_id: bytes) -> Any:
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY if version else LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def check_describe_acls(_version: int, response: Any, _topic_id: bytes) -> None:
    message = "No Authorizer is configured on the broker"
    assert response == DescribeAclsResponse(throttle_time_ms=0, error_code=54, error_message=message, resources=())


def ask_create_acls(_version: int, _topic_id: bytes) -> Any:
    acl = create_acls.AclCreation(
        resource_type=TOPIC,
        resource_name="single",
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    return create_acls.CreateAclsRequest(creations=(acl, acl))


def check_create_acls(_version: int, response: Any, _topic_id: bytes) -> None:
    row = create_acls.AclCreationResult(error_code=54, error_message="No Authorizer is configured.")
    assert response == create_acls.CreateAclsResponse(throttle_time_ms=0, results=(row, row))


def ask_delete_acls(_version: int, _topic_id: bytes) -> Any:
    matching = delete_acls.DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="single",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return delete_acls.DeleteAclsRequest(filters=(matching, matching))


def check_delete_acls(_version: int, response: Any, _topic_id: bytes) -> None:
    row = delete_acls.DeleteAclsFilterResult(
        error_code=54, error_message="No Authorizer is configured.", matching_acls=()
    )
    assert response == delete_acls.DeleteAclsResponse(throttle_time_ms=0, filter_results=(row, row))


def quotas_of(*filters: tuple[str, int, str | None]) -> Any:
    components = tuple(
        describe_quotas.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in filters
    )
    return describe_quotas.DescribeClientQuotasRequest(components=components, strict=False)


#: Filters of DescribeClientQuotas and the faults that Kafka finds in them.
FILTERS: list[tuple[list[tuple[str, int, str | None]], int, str]] = [
    ([], 0, ""),
    ([("user", EXACT, "alice"), ("client-id", DEFAULT, None)], 0, ""),
    ([("ip", SPECIFIED, None)], 0, ""),
    ([("", EXACT, "x")], 42, "Invalid empty entity type."),
    ([("host", EXACT, "x")], 35, "Unsupported entity type host"),
    ([("ip", DEFAULT, None)] * 2, 42, "Entity type ip cannot appear more than once in the filter."),
    ([("user", EXACT, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
    ([("user", DEFAULT, "x")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
    ([("user", SPECIFIED, "x")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
    ([("user", 7, None)], 42, "Unknown match type 7"),
    (
        [("user", DEFAULT, None), ("ip", DEFAULT, None)],
        42,
        "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
        " filter component.",
    ),
]


def quotas_answer(code: int, message: str) -> Any:
    return describe_quotas.DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=message, entries=None if code else ()
    )


def ask_describe_client_quotas(_version: int, _topic_id: bytes) -> Any:
    return quotas_of(("user", EXACT, "alice"))


def check_describe_client_quotas(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response == quotas_answer(0, "")


def ask_alter_client_quotas(_version: int, _topic_id: bytes) -> Any:
    set_ = alter_quotas.OpData(key="producer_byte_rate", value=1000.0, remove=False)
    entities = [alter_quotas.EntityData(entity_type="user", entity_name=name) for name in ("alice", None)]
    entries = tuple(alter_quotas.EntryData(entity=(each,), ops=(set_,)) for each in entities)
    return alter_quotas.AlterClientQuotasRequest(entries=entries, validate_only=True)


def check_alter_client_quotas(version: int, response: Any, topic_id: bytes) -> None:
    assert response.entries == tuple(
        alter_quotas.EntryResult(error_code=0, error_message=None, entity=each.entity)
        for each in ask_alter_client_quotas(version, topic_id).entries
    )


def ask_describe_user_scram_credentials(_version: int, _topic_id: bytes) -> Any:
    users = tuple(describe_credentials.UserName(name=name) for name in ("nobody", "twice", "twice"))
    return describe_credentials.DescribeUserScramCredentialsRequest(users=users)


def check_describe_user_scram_credentials(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.error_message) == (0, "")
    assert sorted((each.user, each.error_code, each.error_message) for each in response.results) == [
        ("nobody", 91, "Attempt to describe a user credential that does not exist: nobody"),
        ("twice", 92, "Cannot describe SCRAM credentials for the same user twice in a single request: twice"),
    ]


def ask_alter_user_scram_credentials(_version: int, _topic_id: bytes) -> Any:
    deletion = alter_credentials.ScramCredentialDeletion(name="alice", mechanism=1)
    upsertions = tuple(
        alter_credentials.ScramCredentialUpsertion(
            name=name, mechanism=2, iterations=4096, salt=b"salt", salted_password=bytes(64)
        )
        for name in ("alice", "bob")
    )
    return alter_credentials.AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=upsertions)


def check_alter_user_scram_credentials(_version: int, response: Any, _topic_id: bytes) -> None:
    assert sorted((each.user, each.error_code, each.error_message) for each in response.results) == [
        ("alice", 92, "A user credential cannot be altered twice in the same request"),
        ("bob", 0, None),
    ]


def ask_sasl_handshake(_version: int, _topic_id: bytes) -> Any:
    return SaslHandshakeRequest(mechanism="PLAIN")


def check_sasl_handshake(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response == SaslHandshakeResponse(error_code=34, mechanisms=())


def ask_sasl_authenticate(_version: int, _topic_id: bytes) -> Any:
    return SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")


def check_sasl_authenticate(_version: int, response: Any, _topic_id: bytes) -> None:
    message = "SaslAuthenticate request received after successful authentication"
    assert response == SaslAuthenticateResponse(error_code=34, error_message=message, auth_bytes=b"")


def ask_create_delegation_token(version: int, _topic_id: bytes) -> Any:
    owner = {"owner_principal_type": "User", "owner_principal_name": "bob"} if version >= 3 else {}
    return create_delegation_token.CreateDelegationTokenRequest(renewers=(), max_lifetime_ms=-1, **owner)


def check_create_delegation_token(version: int, response: Any, _topic_id: bytes) -> None:
    requester = {"token_requester_principal_type": "User", "token_requester_principal_name": "ANONYMOUS"}
    assert response == create_delegation_token.CreateDelegationTokenResponse(
        error_code=64,
        principal_type="User",
        principal_name="bob" if version >= 3 else "ANONYMOUS",
        **(requester if version >= 3 else {}),
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


def ask_renew_delegation_token(_version: int, _topic_id: bytes) -> Any:
    return RenewDelegationTokenRequest(hmac=b"token", renew_period_ms=-1)


def check_renew_delegation_token(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response == RenewDelegationTokenResponse(error_code=64, expiry_timestamp_ms=-1, throttle_time_ms=0)


def ask_expire_delegation_token(_version: int, _topic_id: bytes) -> Any:
    return ExpireDelegationTokenRequest(hmac=b"token", expiry_time_period_ms=-1)


def check_expire_delegation_token(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response == ExpireDelegationTokenResponse(error_code=64, expiry_timestamp_ms=-1, throttle_time_ms=0)


def ask_describe_delegation_token(_version: int, _topic_id: bytes) -> Any:
    return DescribeDelegationTokenRequest(owners=None)


def check_describe_delegation_token(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response == DescribeDelegationTokenResponse(error_code=64, tokens=(), throttle_time_ms=0)


CASES: dict[ApiKey, Case] = {
    ApiKey.DESCRIBE_ACLS: (ask_describe_acls, check_describe_acls),
    ApiKey.CREATE_ACLS: (ask_create_acls, check_create_acls),
    ApiKey.DELETE_ACLS: (ask_delete_acls, check_delete_acls),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (ask_describe_client_quotas, check_describe_client_quotas),
    ApiKey.ALTER_CLIENT_QUOTAS: (ask_alter_client_quotas, check_alter_client_quotas),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        ask_describe_user_scram_credentials,
        check_describe_user_scram_credentials,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (ask_alter_user_scram_credentials, check_alter_user_scram_credentials),
    ApiKey.SASL_HANDSHAKE: (ask_sasl_handshake, check_sasl_handshake),
    ApiKey.SASL_AUTHENTICATE: (ask_sasl_authenticate, check_sasl_authenticate),
    ApiKey.CREATE_DELEGATION_TOKEN: (ask_create_delegation_token, check_create_delegation_token),
    ApiKey.RENEW_DELEGATION_TOKEN: (ask_renew_delegation_token, check_renew_delegation_token),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (ask_expire_delegation_token, check_expire_delegation_token),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (ask_describe_delegation_token, check_describe_delegation_token),
}
