// Values by the schemas of a registry, as @confluentinc/schemaregistry writes and reads them. A line of standard input is
//
//     {"url", "kind": "AVRO" | "JSON", "topic", "schema", "value"}      → {"data": BASE64}, registered as TOPIC-value
//     {"url", "kind", "topic", "data": BASE64}                          → {"value"}
'use strict';

const readline = require('node:readline');
const registry = require('@confluentinc/schemaregistry');

const KINDS = {
  AVRO: [registry.AvroSerializer, registry.AvroDeserializer],
  JSON: [registry.JsonSerializer, registry.JsonDeserializer],
};

async function answer({ url, kind, topic, schema, value, data }) {
  const client = new registry.SchemaRegistryClient({ baseURLs: [url] });
  const [Serializer, Deserializer] = KINDS[kind];
  if (data !== undefined) {
    const reader = new Deserializer(client, registry.SerdeType.VALUE, {});
    return { value: await reader.deserialize(topic, Buffer.from(data, 'base64')) };
  }
  await client.register(`${topic}-value`, { schemaType: kind, schema });
  const writer = new Serializer(client, registry.SerdeType.VALUE, { useLatestVersion: true });
  return { data: (await writer.serialize(topic, value)).toString('base64') };
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))));
  }
  process.exit(0);
}

main();
