"""Subjects of the schema registry with their versions, for the console and for people who have no way to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

from broker_contract.acls import Operation
from fastapi import FastAPI, Path, Request
from service_chassis.schema_registry.schema import RegistryError

from admin_api import errors
from admin_api.needs import on_cluster
from admin_api.paging import PageQuery
from admin_api.registry.schemas import Schemas
from admin_api.routers.insight import ROWS_MAX, next_url
from admin_api.routers.operations import Operations
from admin_api.schemas.subjects import SchemaReference, Subject, SubjectList, SubjectVersion, SubjectVersions
from admin_api.view import SubjectName

if TYPE_CHECKING:
    from service_chassis.schema_registry.client import RegistryClient

PATH = "/api/v1/schemas/subjects"
_VERSIONS = f"{PATH}/{{subject}}/versions"

_Version = Annotated[str, Path(pattern="^([1-9][0-9]{0,8}|latest)$", description="A number, or latest.")]
Found = TypeVar("Found")


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Schemas (api/v1)")
    needs = on_cluster(Operation.DESCRIBE)
    operations.get(PATH, "listSubjects", list_subjects, needs=needs)
    operations.get(_VERSIONS, "listSubjectVersions", list_subject_versions, needs=needs)
    operations.get(f"{_VERSIONS}/{{version}}", "getSubjectVersion", get_subject_version, needs=needs)


async def list_subjects(request: Request, paging: PageQuery) -> SubjectList:
    """List the subjects of the schema registry; at most 1,000 a page. Without a registry the answer is 404."""
    found = await _asked(request, lambda client: client.subjects())
    page = paging.cut(found, lambda each: (each,), rows_max=ROWS_MAX)
    return SubjectList(data=[Subject(subject=each) for each in page.rows], next=next_url(request, page.next_query))


async def list_subject_versions(request: Request, subject: SubjectName) -> SubjectVersions:
    """List the versions of a subject."""
    found = await _asked(request, lambda client: client.versions(subject))
    return SubjectVersions(subject=subject, versions=found)


async def get_subject_version(request: Request, subject: SubjectName, version: _Version) -> SubjectVersion:
    """Return one version of a subject: the schema's text, its type, id and references."""
    number = None if version == "latest" else int(version)
    found = await _asked(request, lambda client: client.version(subject, number))
    references = [SchemaReference(**each._asdict()) for each in found.schema.references]
    return SubjectVersion(
        subject=subject,
        version=found.number,
        schema_id=found.id,
        type=found.schema.type,  # type: ignore[arg-type]  # one of those that are known
        text=found.schema.text,
        references=references,
    )


async def _asked(request: Request, ask: Callable[[RegistryClient], Awaitable[Found]]) -> Found:
    schemas: Schemas = request.app.state.schemas
    try:
        return await ask(await schemas.client())
    except RegistryError as error:
        if error.status == 404:
            raise errors.not_found("There is no such subject, or it has no such version.") from None
        if not schemas.are_set:
            raise errors.not_found(f"{error}.") from None
        message = str(error)
        raise errors.registry_away(f"{message[:1].upper()}{message[1:]}.") from None
