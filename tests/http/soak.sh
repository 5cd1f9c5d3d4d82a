#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# 64 streams at once, with clients that leave, do not read, or say nothing. SOAK_SECONDS is 20.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
. tests/http/harness.bash
serve --ctx 256 --parallel 96 --queue 200 --timeout 3600
node tests/http/soak.mjs "$url" "$server_pid" "${SOAK_SECONDS:-20}" >"$dir/client.out" 2>&1
client=$?
sed '$d' "$dir/client.out"
read -r p _ f _ < <(tail -n 1 "$dir/client.out")
passed=$((passed + p)) failed=$((failed + f))
[ $client = 0 ] || check "the clients are content" false
stop_server
check "SIGTERM ends it with success" rc_is 0
finish
