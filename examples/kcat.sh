#!/usr/bin/env bash
# Keys, headers and offsets with kcat.
set -euo pipefail
bootstrap=${BOOTSTRAP:-localhost:9092}
topic=kcat-$$

printf 'alice:3\nbob:5\nalice:4\n' | kcat -b "$bootstrap" -t "$topic" -P -K : -H source=example
echo "all of it:"
kcat -b "$bootstrap" -t "$topic" -C -e -q -f '%k %s %h\n'
echo "the newest record:"
kcat -b "$bootstrap" -t "$topic" -C -e -q -o -1 -f '%o %k %s\n'
