// Transactions of stock KafkaJS against a broker: `node transactions.js BOOTSTRAP PREFIX`.
// test_client_transactions.py has the outcomes.

const { Kafka, logLevel } = require("kafkajs");

const PARTITIONS = [0, 1];
const END = "end";

const [bootstrap, prefix] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } });
const admin = kafka.admin();
let groups = 0;

function say(name, outcome) {
  process.stdout.write(`${name}: ${JSON.stringify(outcome)}\n`);
}

/** The name of the broker's error, or the text of the client's. */
async function refusal(call) {
  return call.then(
    () => null,
    (error) => error.type ?? error.message,
  );
}

async function until(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 20));
}

async function topicOf(name) {
  const topic = `${prefix}-${name}`;
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS.length, replicationFactor: 1 }] });
  return topic;
}

async function producerOf(id, transactionTimeout = 60000) {
  const producer = kafka.producer({
    transactionalId: `${prefix}-${id}`,
    transactionTimeout,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: () => ({ message }) => message.partition,
  });
  await producer.connect();
  return producer;
}

function send(transaction, topic, partition, value) {
  return transaction.send({ topic, messages: [{ partition, value }] });
}

/** Read a topic to the end of each partition, as a member of a group that commits nothing. */
async function read(topic, groupId, readUncommitted) {
  const consumer = kafka.consumer({ groupId, readUncommitted, maxWaitTimeInMs: 100 });
  const found = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      found.push({ partition, offset: message.offset, value: message.value.toString() });
    },
  });
  await until(() => found.filter(({ value }) => value === END).length === PARTITIONS.length);
  await consumer.disconnect();
  return found;
}

async function values(topic, readUncommitted) {
  const found = await read(topic, `${prefix}-values-${groups++}`, readUncommitted);
  return PARTITIONS.map((index) => found.filter(({ partition }) => partition === index).map(({ value }) => value));
}

async function sayValues(topic) {
  say("committed", await values(topic, false));
  say("all", await values(topic, true));
}

async function commitAndAbort() {
  const topic = await topicOf("both");
  const producer = await producerOf("both");
  for (let number = 0; number < 5; number += 1) {
    const transaction = await producer.transaction();
    for (const partition of PARTITIONS) {
      await send(transaction, topic, partition, number < 4 ? `${number}-${partition}` : END);
    }
    await (number % 2 === 0 ? transaction.commit() : transaction.abort());
  }
  await producer.disconnect();
  await sayValues(topic);
  return topic;
}

/** Two producers' transactions are aborted by somebody else: one then commits, the other sends. */
async function refused(name, timeout, isFenced) {
  const topic = await topicOf(name);
  const producers = [];
  const begin = async (id, transactionTimeout) => {
    const producer = await producerOf(id, transactionTimeout);
    producers.push(producer);
    return producer.transaction(); // the first one asks for the producer id
  };
  const ids = [`${name}-commit`, `${name}-send`];
  const first = await Promise.all(ids.map((id) => begin(id, timeout)));
  for (const partition of PARTITIONS) await send(first[partition], topic, partition, "lost");
  const succeed = () => Promise.all(ids.map((id) => begin(id)));
  let next = isFenced ? await succeed() : [];
  // Each partition has one record and the marker of its abort.
  await until(async () => (await admin.fetchTopicOffsets(topic)).every(({ high }) => high === "2"));
  say("refused commit", await refusal(first[0].commit()));
  say("refused send", await refusal(send(first[1], topic, 1, "late")));
  next = isFenced ? next : await succeed();
  for (const partition of PARTITIONS) {
    await send(next[partition], topic, partition, END);
    await next[partition].commit();
  }
  for (const producer of producers) await producer.disconnect();
  await sayValues(topic);
}

async function offsets(groupId, topic) {
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
  return partitions
    .filter(({ offset }) => offset !== "-1")
    .map(({ partition, offset }) => `${partition}=${offset}`)
    .sort();
}

/** Read the committed records of a topic, and write them and the offsets; the first attempt aborts. */
async function copy(source) {
  const target = await topicOf("copy");
  const groupId = `${prefix}-copier`;
  const found = await read(source, groupId, false);
  const producer = await producerOf("copier");
  for (const mustCommit of [false, true]) {
    const transaction = await producer.transaction();
    for (const { partition, offset, value } of found) {
      await send(transaction, target, partition, value);
      const next = { partition, offset: (BigInt(offset) + 1n).toString() };
      await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [next] }] });
    }
    await (mustCommit ? transaction.commit() : transaction.abort());
    if (!mustCommit) say("offsets after an abort", await offsets(groupId, source));
  }
  await producer.disconnect();
  // The markers of a commit come after its answer.
  await until(async () => (await offsets(groupId, source)).length === PARTITIONS.length);
  say("offsets", await offsets(groupId, source));
  say("copy", await values(target, false));
}

async function main() {
  await admin.connect();
  const source = await commitAndAbort();
  await refused("fence", 60000, true);
  await refused("time-out", 300, false);
  await copy(source);
  await admin.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
