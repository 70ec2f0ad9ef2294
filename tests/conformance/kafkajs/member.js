// A member of a group that a test drives; remote_members.py has its commands and reports.

const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 100, maxWaitTimeInMs: 100 });
const admin = kafka.admin();
const positions = new Map();
let owned = [];

function say(name, value) {
  process.stdout.write(`${JSON.stringify({ [name]: value })}\n`);
}

function assign(partitions) {
  if (owned.length > 0) say("revoked", owned);
  owned = partitions;
  say("assigned", owned);
}

async function lag() {
  const committed = new Map();
  for (const { partitions } of await admin.fetchOffsets({ groupId, topics: [topic] })) {
    for (const { partition, offset } of partitions) committed.set(partition, Number(offset));
  }
  const ends = await admin.fetchTopicOffsets(topic);
  return Object.fromEntries(ends.map(({ partition, high }) => [partition, Number(high) - committed.get(partition)]));
}

async function answer([name, partition, offset]) {
  const place = { topic, partitions: [Number(partition)] };
  if (name === "pause") consumer.pause([place]);
  if (name === "resume") consumer.resume([place]);
  if (name === "seek") consumer.seek({ topic, partition: Number(partition), offset });
  if (name === "commit") await consumer.commitOffsets([...positions.values()]);
  return name === "lag" ? lag() : null;
}

async function main() {
  await admin.connect();
  await consumer.connect();
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => assign(payload.memberAssignment[topic] ?? []));
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      positions.set(partition, { topic, partition, offset: (BigInt(message.offset) + 1n).toString() });
      say("record", [partition, Number(message.offset), Number(message.value.toString())]);
    },
  });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const words = line.split(" ");
    if (words[0] === "close") break;
    say("done", await answer(words));
  }
  await consumer.disconnect();
  await admin.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
