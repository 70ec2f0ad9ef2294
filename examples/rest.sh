#!/usr/bin/env bash
# Create a topic with a retention over REST, read the retention back, delete the topic.
set -euo pipefail
cluster=http://${HTTP:-localhost:8082}/v3/clusters/-
topic=rest-$$

curl -sf -o /dev/null -X POST "$cluster/topics" -H 'Content-Type: application/json' \
     -d "{\"topic_name\": \"$topic\", \"partitions_count\": 2, \"configs\": [{\"name\": \"retention.ms\", \"value\": \"60000\"}]}"
curl -sf "$cluster/topics/$topic/configs/retention.ms" | grep -o '"value":"[^"]*"' | head -1
curl -sf -o /dev/null -w 'deleted: %{http_code}\n' -X DELETE "$cluster/topics/$topic"
