// Stock KafkaJS against a broker: `node conformance.js BOOTSTRAP PREFIX RECORDS`.
//
// For every codec that KafkaJS carries (none, gzip) there is a topic PREFIX-CODEC with four partitions. Two members of
// group PREFIX share all partitions before anything is produced; RECORDS keyed records with headers go to each topic;
// the members must see each record once, whole, and in order within its partition; they commit and leave. Then a tenth
// as many records follow, and one new member resumes at the committed offsets. One line of JSON on standard output
// has the counts; any difference ends the program with status 1.

const { CompressionTypes, Kafka, Partitioners, logLevel } = require("kafkajs");
const { version } = require("kafkajs/package.json");

const PARTITIONS = 4;
const WAIT_MS = 60000;
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

const [bootstrap, prefix, recordsText] = process.argv.slice(2);
const records = Number(recordsText);
const resumedRecords = Math.floor(records / 10);
const topics = Object.keys(CODECS).map((codec) => `${prefix}-${codec}`);
const kafka = new Kafka({ clientId: "conformance-kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR });

/** The record with number n of a codec; every hundredth is a tombstone. */
function record(codec, n) {
  return {
    key: `key-${n % 97}`,
    value: n % 100 === 99 ? null : `${codec}:${n}:${"x".repeat(n % 500)}`,
    headers: { n: String(n), codec },
  };
}

function check(condition, text) {
  if (!condition) throw new Error(text);
}

async function until(condition, text) {
  const deadline = Date.now() + WAIT_MS;
  while (!condition()) {
    check(Date.now() < deadline, `timed out: ${text()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** What the members of the group saw together. */
class Seen {
  constructor(first) {
    this.first = first;
    this.numbers = Object.fromEntries(Object.keys(CODECS).map((codec) => [codec, new Set()]));
    this.last = new Map();
    this.errors = [];
  }

  add(topic, partition, message) {
    const codec = message.headers.codec.toString();
    const n = Number(message.headers.n.toString());
    const expected = record(codec, n);
    const value = message.value === null ? null : message.value.toString();
    const place = `${topic}-${partition}`;
    check(topic === `${prefix}-${codec}`, `${place}: a record of codec ${codec}`);
    check(message.key.toString() === expected.key && value === expected.value, `${place}: record ${n} differs`);
    check(n >= this.first && !this.numbers[codec].has(n), `${place}: record ${n} came twice or too late`);
    check(n > (this.last.get(place) ?? -1), `${place}: record ${n} is out of order`);
    this.last.set(place, n);
    this.numbers[codec].add(n);
  }

  count(codec) {
    return this.numbers[codec].size;
  }
}

/** One member of the group: it notes its assignment, its records, and the offsets it would commit. */
async function startMember(name, seen) {
  const consumer = kafka.consumer({
    groupId: prefix,
    sessionTimeout: 10000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 200,
  });
  const member = { consumer, assigned: [], count: 0, offsets: new Map() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = Object.entries(payload.memberAssignment).flatMap(([topic, ps]) => ps.map((p) => `${topic}-${p}`));
  });
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      try {
        seen.add(topic, partition, message);
        member.count += 1;
        member.offsets.set(`${topic}-${partition}`, {
          topic,
          partition,
          offset: (BigInt(message.offset) + 1n).toString(),
        });
      } catch (error) {
        seen.errors.push(`${name}: ${error.message}`);
      }
    },
  });
  return member;
}

// All commit before any leaves: the rebalance that follows takes positions from committed offsets.
async function commitAndLeave(members) {
  for (const { consumer, offsets } of members) await consumer.commitOffsets([...offsets.values()]);
  for (const { consumer } of members) await consumer.disconnect();
}

async function produce(first, count) {
  for (const [codec, compression] of Object.entries(CODECS)) {
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      idempotent: codec === "gzip",
    });
    await producer.connect();
    for (let n = first; n < first + count; n += 250) {
      const messages = [];
      for (let m = n; m < Math.min(n + 250, first + count); m += 1) messages.push(record(codec, m));
      await producer.send({ topic: `${prefix}-${codec}`, acks: -1, compression, messages });
    }
    await producer.disconnect();
  }
}

async function seenAll(seen, count) {
  const counts = () => Object.keys(CODECS).map((codec) => seen.count(codec));
  await until(
    () => seen.errors.length > 0 || counts().every((n) => n >= count),
    () => `consumed ${counts()} of ${count} each`,
  );
  check(seen.errors.length === 0, seen.errors[0]);
}

async function committed(admin) {
  let total = 0;
  for (const { partitions } of await admin.fetchOffsets({ groupId: prefix, topics })) {
    for (const { offset } of partitions) total += Math.max(Number(offset), 0);
  }
  return total;
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({
    waitForLeaders: true,
    topics: topics.map((topic) => ({ topic, numPartitions: PARTITIONS, replicationFactor: 1 })),
  });

  const seen = new Seen(0);
  const members = [await startMember("first", seen), await startMember("second", seen)];
  const partitions = topics.length * PARTITIONS;
  await until(
    () =>
      members.every((member) => member.assigned.length > 0) &&
      new Set(members.flatMap((member) => member.assigned)).size === partitions &&
      members[0].assigned.length + members[1].assigned.length === partitions,
    () => `assignments ${members.map((member) => member.assigned.length)}`,
  );
  await produce(0, records);
  await seenAll(seen, records);
  await commitAndLeave(members);
  const committedFirst = await committed(admin);

  await produce(records, resumedRecords);
  const resumed = new Seen(records);
  const successor = await startMember("successor", resumed);
  await seenAll(resumed, resumedRecords);
  await commitAndLeave([successor]);
  const committedLast = await committed(admin);
  await admin.disconnect();
  check(seen.errors.length + resumed.errors.length === 0, [...seen.errors, ...resumed.errors].join("; "));

  const codecs = {};
  for (const codec of Object.keys(CODECS)) {
    codecs[codec] = { consumed: seen.count(codec), resumed: resumed.count(codec) };
  }
  const result = {
    client: `kafkajs ${version}`,
    codecs,
    members: members.map((member) => member.count),
    committed: [committedFirst, committedLast],
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
