// A producer that logs in over TLS; secured_clients.py has its argument and its report.

const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const asked = JSON.parse(process.argv[2]);

function say(name, value) {
  process.stdout.write(`${JSON.stringify({ [name]: value })}\n`);
}

function login() {
  const { mechanism, user: username, password, token } = asked;
  const read = async () => ({ value: fs.readFileSync(token, "utf8") });
  if (mechanism === "OAUTHBEARER") return { mechanism, oauthBearerProvider: read };
  return { mechanism: mechanism.toLowerCase(), username, password };
}

async function produce() {
  const kafka = new Kafka({
    brokers: [asked.bootstrap],
    logLevel: logLevel.NOTHING,
    connectionTimeout: 30000,
    retry: { retries: 3, initialRetryTime: 50 },
    reauthenticationThreshold: 500, // logs in again 500 ms before the end of a session
    ssl: { ca: [fs.readFileSync(asked.authority)] },
    sasl: asked.mechanism ? login() : undefined,
  });
  const producer = kafka.producer();
  await producer.connect();
  for (let n = 0; n < asked.count; n += 1) {
    await producer.send({ topic: asked.topic, acks: -1, messages: [{ value: String(n) }] });
    say("delivered", n);
    await new Promise((resolve) => setTimeout(resolve, asked.pause_ms));
  }
  await producer.disconnect();
}

produce()
  .catch((error) => say("error", `${error.type ?? ""} ${error.message}`))
  .then(() => process.exit(0));
