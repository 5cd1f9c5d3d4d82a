#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The official openai client for JavaScript does what its users do.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
. tests/http/harness.bash
need_client
serve --ctx 256 --parallel 8
node tests/http/openai.mjs "$url" 256 >"$dir/client.out" 2>&1
client=$?
sed '$d' "$dir/client.out"
read -r p _ f _ < <(tail -n 1 "$dir/client.out")
passed=$((passed + p)) failed=$((failed + f))
[ $client = 0 ] || check "the client's tests pass" false
stop_server
check "SIGTERM ends it with success" rc_is 0
finish
