#!/usr/bin/env bash
# Renews the libraries of the console: builds static/console/vendor/ from npm packages of these versions, with licences
# and hashes. Needs node and npm. After a change of a version: run it, look at the difference, run the console's tests.
set -euo pipefail
packages=(preact@11.2.0 @preact/signals@2.11.4 @preact/signals-core@1.14.5 htm@3.1.1)
bundler=esbuild@0.28.2
target=$(cd "$(dirname "$0")" && pwd)/src/admin_api/static/console/vendor
types=$(cd "$(dirname "$0")" && pwd)/console_types
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init --yes > /dev/null
npm install --silent --ignore-scripts --save-exact "${packages[@]}" "$bundler"

cat > preact.js <<'END'
import { h } from "preact";
import htm from "htm";
export { Component, render } from "preact";
export { useEffect, useMemo, useRef, useState } from "preact/hooks";
export { effect, signal } from "@preact/signals";
export const html = htm.bind(h);
END
build() { npx esbuild "$1" --bundle --minify --format=esm --target=es2022 --charset=utf8 --legal-comments=none --outfile="$2" --log-level=warning; }
rm -rf "$target"
mkdir -p "$target"
build preact.js "$target/preact.js"
cp "$types/preact.d.ts" "$target/"
for package in "${packages[@]}"; do
  name=${package%@*}
  cp "node_modules/$name/LICENSE" "$target/LICENSE-$(tr -d @ <<< "${name//\//-}").txt"
done
{
  printf '%s\n\n' 'Made by `admin-api/renew_console_vendored.sh` with '"$bundler"' from npm packages; do not edit. `preact.js` has them all.'
  for package in "${packages[@]}"; do
    printf -- '- %s (%s)\n' "$package" "$(node -p "require('./node_modules/${package%@*}/package.json').license")"
  done
  printf '\n    '
  (cd "$target" && LC_ALL=C sha256sum -- *) | sed '2,$s/^/    /'
} > VENDORED.md
mv VENDORED.md "$target/"
