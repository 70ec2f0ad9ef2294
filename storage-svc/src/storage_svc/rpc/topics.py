"""The Topics service: describe, create and delete topics; describe, alter and list configs, of groups and brokers, too.

Errors are Kafka codes per topic or resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from broker_contract import topics_pb2 as pb
from broker_contract.topic_names import name_fault
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs
from service_chassis.steps import TaskSteps

from storage_svc.log.config import LogConfig
from storage_svc.log.errors import LogError
from storage_svc.rpc.config_alterations import ConfigAlterations
from storage_svc.rpc.configs import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    MESSAGE_LENGTH_MAX,
    TOPIC_RESOURCE,
    ConfigDescriptions,
)
from storage_svc.rpc.topic_plan import Fault, Plan, TopicDefaults, TopicPlans
from storage_svc.topics.catalog_file import CatalogError, CatalogFull
from storage_svc.topics.client_metrics import ClientMetrics
from storage_svc.topics.group_configs import GroupConfigs
from storage_svc.topics.registry import TopicRegistry
from storage_svc.topics.topic import Topic

log = service_logs.get(__name__)


_NO_ID: Final = bytes(16)
#: Partitions that are described without a turn for others.
_DESCRIBED_PIECE: Final = 1000
#: Topics of one transaction of the catalog, which takes 15 ms then.
DELETED_TOGETHER_MAX: Final = 1000
#: Topics that are created or deleted and whose answer is built without a turn for others.
_TURN: Final = 100
#: Most topics that one description creates. A client names the topics that it uses, seldom more, and asks again for
#: those that are answered UNKNOWN_TOPIC_OR_PARTITION. Without a bound one request could make as many topics as the
#: broker may have partitions.
AUTO_CREATED_MAX: Final = 100


class TopicsService:
    def __init__(
        self,
        registry: TopicRegistry[LogConfig],
        defaults: TopicDefaults,
        configs: ConfigDescriptions,
        alterations: ConfigAlterations,
        group_configs: GroupConfigs,
        client_metrics: ClientMetrics,
        create_internal: Mapping[str, Callable[[], Awaitable[ErrorCode]]],
        is_broker: Callable[[int], bool],
        live_brokers: Callable[[], Iterable[int]],
    ) -> None:
        self._registry = registry
        self._defaults = defaults
        self._configs = configs
        self._create_internal = create_internal
        self._plans = TopicPlans(registry, defaults, is_broker)
        self._live_brokers = live_brokers
        self._group_configs = group_configs
        self._client_metrics = client_metrics
        self._alterations = alterations

    # --- describe -------------------------------------------------------------------------------------------------

    async def describe_topics(self, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
        if request.all:
            return await self._describe_all()
        before = self._registry.version
        may_create = AUTO_CREATED_MAX if request.auto_create else 0
        topics = []
        steps = TaskSteps(_DESCRIBED_PIECE)
        for ref in request.topics:
            topic = self._found(ref)
            if topic is None:
                topic = await self._describe_missing(ref, auto_create=may_create > 0)
                may_create -= 1
            topics.append(topic)
            await steps.count(topic.partition_count)
        return pb.DescribeTopicsResponse(topics=topics, created=self._registry.version != before)

    async def _describe_all(self) -> pb.DescribeTopicsResponse:
        """Describe all topics, a thousand partitions in a turn, or one topic."""
        steps = TaskSteps(_DESCRIBED_PIECE)
        answer = pb.DescribeTopicsResponse()
        await steps.begin()  # mutant: topics-in-turns
        for name in self._registry.names():
            topic = self._registry.get(name)
            if topic is None:  # deleted since
                continue
            answer.topics.append(self._described(topic))
            await steps.count(topic.partition_count)
        return answer

    def _found(self, ref: pb.TopicRef) -> pb.Topic | None:
        topic = self._find(ref)
        return None if topic is None else self._described(topic)

    async def _describe_missing(self, ref: pb.TopicRef, *, auto_create: bool) -> pb.Topic:
        """Create a topic if that is allowed, and describe it."""
        if ref.id:
            return pb.Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, id=ref.id)
        if name_fault(ref.name) is not None:
            return pb.Topic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=ref.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if auto_create and ref.name in self._create_internal:
            error = await self._create_internal[ref.name]()
        elif auto_create and self._defaults.auto_create:
            await self._registry.created([ref.name])  # another client may have asked for it, too
            if ref.name not in self._registry and not self._registry.is_changing(ref.name):
                error = await self._auto_create(ref.name)
        return self._found(ref) or pb.Topic(error_code=error, name=ref.name)

    async def _auto_create(self, name: str) -> ErrorCode:
        fault = self._plans.new_name_fault(name)
        if fault is None:
            fault = self._plans.count_fault(self._defaults.partition_count)
        if fault is None:
            topic = self._registry.announce(name, self._defaults.partition_count, {})
            fault = (await self._create([topic])).get(name)
        if fault is None:
            log.info("created a topic because a client asked for it", topic=name)
            return ErrorCode.NONE
        log.warning("cannot create the topic a client asked for", topic=name, reason=fault.message)
        return fault.code

    def _described(self, topic: Topic) -> pb.Topic:
        return pb.Topic(
            name=topic.name,
            id=topic.id,
            is_internal=topic.is_internal,
            partition_count=topic.partition_count,
            leader_epochs=self._registry.leader_epochs(topic),
        )

    def _find(self, ref: pb.TopicRef) -> Topic | None:
        return self._registry.get(ref.name) if ref.name else self._registry.get_by_id(ref.id)

    # --- create ---------------------------------------------------------------------------------------------------

    async def create_topics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
        """Create the topics together that nothing speaks against."""
        named = Counter(new.name for new in request.topics)
        await self._registry.created(named)  # mutant: earlier-creation-decided
        planned: list[Plan | Fault] = []
        announced: dict[str, Topic] = {}
        try:
            for new in request.topics:
                plan = self._plan(new, is_duplicate=named[new.name] > 1)
                if isinstance(plan, Plan):  # the checks of the next ones count it
                    announced[new.name] = self._registry.announce(new.name, plan.partition_count, plan.configs)
                planned.append(plan)
        except BaseException:
            self._registry.renounce(announced.values())
            raise
        faults: dict[str, Fault] = {}
        if request.validate_only:
            self._registry.renounce(announced.values())
        else:
            faults = await self._create(list(announced.values()))
        answer = pb.CreateTopicsResponse()
        steps = TaskSteps(_TURN)
        for new, plan in zip(request.topics, planned, strict=True):
            await steps.count()
            result = faults.get(new.name, plan) if isinstance(plan, Plan) else plan
            if isinstance(result, Fault):
                answer.topics.append(_refused(new.name, result))
            else:
                topic = None if request.validate_only else announced[new.name]
                answer.topics.append(self._created(new.name, result, topic))
        return answer

    def _plan(self, new: pb.NewTopic, *, is_duplicate: bool) -> Plan | Fault:
        if is_duplicate:
            return Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        return self._plans.plan(new)

    def _created(self, name: str, plan: Plan, topic: Topic | None) -> pb.CreatedTopic:
        """Describe a topic that was created, or, without one, that could be."""
        if topic is not None:
            log.info("created a topic", topic=name, partitions=topic.partition_count, configs=dict(plan.configs))
        return pb.CreatedTopic(
            name=name,
            id=_NO_ID if topic is None else topic.id,
            partition_count=plan.partition_count,
            replication_factor=1,
            configs=self._configs.of_topic(plan.configs),
        )

    async def _create(self, topics: Sequence[Topic]) -> dict[str, Fault]:
        """Create announced topics; return the reasons for those that could not be made."""
        if not topics:
            return {}
        try:
            failed = await self._registry.create_announced(topics)
        except CatalogError as error:
            return {topic.name: _not_stored(topic.name, error) for topic in topics}
        return _not_made(failed)

    # --- grow -----------------------------------------------------------------------------------------------------

    async def create_partitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsResponse:
        """Give topics more partitions together, by the rules and with the messages of ReplicationControlManager."""
        named = Counter(each.name for each in request.topics)
        faults: dict[str, Fault] = {}
        growths: dict[str, int] = {}
        added = 0
        for each in request.topics:
            topic = self._registry.get(each.name)
            if topic is None:
                faults[each.name] = Fault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            elif named[each.name] > 1:
                faults[each.name] = Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            elif (fault := self._plans.growth_fault(topic, each, added)) is not None:
                faults[each.name] = fault
            else:
                growths[each.name] = each.partition_count
                added += each.partition_count - topic.partition_count
        if growths and not request.validate_only:
            faults |= await self._grow(growths)
        response = pb.CreatePartitionsResponse()
        for each in request.topics:
            if (fault := faults.get(each.name)) is None:
                response.topics.add(name=each.name)
            else:
                message = fault.message[:MESSAGE_LENGTH_MAX]
                response.topics.add(name=each.name, error_code=fault.code, error_message=message)
        return response

    async def _grow(self, growths: Mapping[str, int]) -> dict[str, Fault]:
        """Give topics these numbers of partitions; return the reasons for those that could not grow."""
        try:
            failed = await self._registry.grow(growths)
        except CatalogError as error:
            return {name: _not_stored(name, error) for name in growths}
        for name, count in growths.items():
            if name not in failed:
                log.info("added partitions", topic=name, partitions=count)
        return _not_made(failed)

    # --- delete ---------------------------------------------------------------------------------------------------

    async def delete_topics(self, request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsResponse:
        """Delete the topics together that nothing speaks against."""
        found = [self._find(ref) for ref in request.topics]
        named = Counter(_meant(ref, topic) for ref, topic in zip(request.topics, found, strict=True))
        wanted = [
            _deletable(ref, topic, is_duplicate=named[_meant(ref, topic)] > 1)
            for ref, topic in zip(request.topics, found, strict=True)
        ]
        results = await self._delete([each for each in wanted if isinstance(each, Topic)])
        answer = pb.DeleteTopicsResponse()
        for ref, each in zip(request.topics, wanted, strict=True):
            result = each if isinstance(each, Fault) else results.get(each.id, _unknown(ref))
            if isinstance(result, Fault):
                answer.topics.add(name=ref.name, id=ref.id, error_code=result.code, error_message=result.message)
            else:
                answer.topics.add(name=result.name, id=result.id)
        return answer

    async def _delete(self, topics: Sequence[Topic]) -> dict[bytes, Topic | Fault]:
        """Delete topics; return what became of each, by id, except those that another request deleted."""
        steps = TaskSteps(_TURN)
        results: dict[bytes, Topic | Fault] = {}
        size = DELETED_TOGETHER_MAX
        while topics:
            some = topics[:size]
            try:
                deleted = await self._registry.delete(some)
            except (CatalogError, LogError) as error:
                if isinstance(error, CatalogFull) and len(some) > 1:  # fewer may fit into the space in reserve
                    size = max(len(some) // 8, 1)
                    continue
                log.error("cannot delete topics", first=some[0].name, number=len(some), reason=str(error))
                fault = Fault(ErrorCode.KAFKA_STORAGE_ERROR, f"The deletion could not be stored: {error}")
                results |= dict.fromkeys((topic.id for topic in some), fault)
                deleted = ()
            for topic in deleted:
                log.info("deleted a topic", topic=topic.name, partitions=topic.partition_count)
                results[topic.id] = topic
                await steps.count()
            topics = topics[len(some) :]
        return results

    # --- configs --------------------------------------------------------------------------------------------------

    async def describe_configs(self, request: pb.DescribeConfigsRequest) -> pb.DescribeConfigsResponse:
        described = [self._configs.describe(each, request.asking_broker) for each in request.resources]
        return pb.DescribeConfigsResponse(resources=described)

    async def alter_configs(self, request: pb.AlterConfigsRequest) -> pb.AlterConfigsResponse:
        return pb.AlterConfigsResponse(resources=await self._alterations.alter(request))

    async def list_config_resources(
        self,
        request: pb.ListConfigResourcesRequest,  # noqa: ARG002
    ) -> pb.ListConfigResourcesResponse:
        brokers = [str(node_id) for node_id in self._live_brokers()]
        named = {
            TOPIC_RESOURCE: self._registry.names(),
            LOGGER_RESOURCE: brokers,
            BROKER_RESOURCE: brokers,
            CLIENT_METRICS_RESOURCE: self._client_metrics.names(),
            GROUP_RESOURCE: self._group_configs.group_ids(),
        }
        resources = [pb.NamedResource(type=kind, name=name) for kind, names in named.items() for name in names]
        return pb.ListConfigResourcesResponse(resources=resources)


def _meant(ref: pb.TopicRef, topic: Topic | None) -> tuple[str, bytes]:
    """Return what a deletion means, which may be named in two ways where there is a topic."""
    return (ref.name, ref.id) if topic is None else ("", topic.id)


def _deletable(ref: pb.TopicRef, topic: Topic | None, *, is_duplicate: bool) -> Topic | Fault:
    """Return the topic that is to be deleted, or the reason why it is not."""
    if is_duplicate:
        return Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic.")
    if topic is None:
        return _unknown(ref)
    if topic.is_internal:
        return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' belongs to the broker itself.")
    return topic


def _unknown(ref: pb.TopicRef) -> Fault:
    code = ErrorCode.UNKNOWN_TOPIC_ID if ref.id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Fault(code, "This server does not host this topic.")


def _not_made(failed: Mapping[str, Exception]) -> dict[str, Fault]:
    """Return the reasons for topics whose logs could not be made."""
    for name, fault in failed.items():
        if not isinstance(fault, LogError):
            log.error("cannot create a topic", topic=name, exc_info=fault)
    return {name: _not_stored(name, fault) for name, fault in failed.items()}


def _not_stored(name: str, error: Exception) -> Fault:
    log.error("cannot create a topic", topic=name, reason=str(error))
    return Fault(ErrorCode.KAFKA_STORAGE_ERROR, f"The topic could not be stored: {error}")


def _refused(name: str, fault: Fault) -> pb.CreatedTopic:
    return pb.CreatedTopic(
        name=name,
        id=_NO_ID,
        error_code=fault.code,
        error_message=fault.message[:MESSAGE_LENGTH_MAX],
        partition_count=-1,
        replication_factor=-1,
    )
