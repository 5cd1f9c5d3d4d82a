#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# 10,000 requests that are wrong in some way, against the server built with AddressSanitizer.
# MALFORMED is how many, SEED begins the generator.
cd "$(dirname "$0")/../.." || exit 1
[ ! -x build/asan/gemmule ] || export GEMMULE=build/asan/gemmule
. tests/cli/harness.bash
. tests/http/harness.bash
serve --ctx 256 --parallel 16 --queue 1000 --timeout 60
# shellcheck disable=SC2086 # no seed is no word
node tests/http/malformed.mjs "$url" "${MALFORMED:-10000}" ${SEED:-} >"$dir/client.out" 2>&1
client=$?
sed '$d' "$dir/client.out"
read -r p _ f _ < <(tail -n 1 "$dir/client.out")
passed=$((passed + p)) failed=$((failed + f))
[ $client = 0 ] || check "the server stood" false
stop_server
check "no crash and no leak" rc_is 0
check "the sanitizer is silent" same "$(grep -c 'Sanitizer\|runtime error' "$dir/serve.err")" 0
finish
