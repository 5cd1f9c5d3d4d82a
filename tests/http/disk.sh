#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The cache on disk: restarts, kill -9 while it is written, a disk that is full, one that cannot be
# written, the cache of another model. The disks are real mounts in a mount namespace of their own.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
. tests/http/harness.bash

# A prompt of some hundred tokens, and how many of them came from the cache.
words=$(printf 'word%d ' {1..120})
cached() { # salt [max_tokens]
    out=$(curl -s -m 60 "$url/v1/completions" -H 'Content-Type: application/json' \
        -d "{\"prompt\":\"$1 $words\",\"max_tokens\":${2:-4},\"ignore_eos\":true,\"seed\":1}")
    last="a prompt that begins with $1" rc=0 err=$(tail -n 5 "$dir/serve.err")
    sed -nE 's/.*"cached_tokens":([0-9]+).*/\1/p' <<<"$out"
}
more() { [ "${1:-0}" -gt "$2" ]; }
answer() { sed -E 's/.*"text":"([^"]*)".*/\1/' <<<"$out"; }

# ---- restarts ------------------------------------------------------------------------------
serve --cache-dir "$dir/cache"
check "nothing is cached at first" same "$(cached a)" 0
cached a >/dev/null
first=$(answer)
stop_server
check "ends with success" rc_is 0
check "there is a file" more "$(find "$dir/cache" -name '*.gmkv' | wc -l)" 0
serve --cache-dir "$dir/cache"
check "after a restart it is there" more "$(cached a)" 100
cached a >/dev/null
check "and the answer the same" same "$(answer)" "$first"
stop_server

# ---- another model -------------------------------------------------------------------------
"$G" synth "$dir/other.gguf" --seed 77 2>/dev/null
kept_model=$MODEL
MODEL=$dir/other.gguf
serve --cache-dir "$dir/cache"
last="a cache of another model" err=$(cat "$dir/serve.err")
check "is left alone with a word" err_has 'stay unread: they are of another model'
check "and not used" same "$(cached a)" 0
stop_server
check "ends with success" rc_is 0
MODEL=$kept_model
serve --cache-dir "$dir/cache"
check "and there for its own model" more "$(cached a)" 100
stop_server

# ---- kill -9 -------------------------------------------------------------------------------
rm -rf "$dir/cache"
for round in 1 2 3 4 5 6; do
    serve --cache-dir "$dir/cache" --ctx 1024
    for i in 1 2 3; do cached "r$round-$i" >/dev/null & done
    sleep "0.0$((round * 3))"
    kill -9 "$server_pid"
    wait "$server_pid" 2>/dev/null
    wait
done
serve --cache-dir "$dir/cache" --ctx 1024
last="a start after kill -9" err=$(cat "$dir/serve.err")
check "no file is wrong inside" eval '! err_has "checksum is wrong"'
cached z >/dev/null
check "it works" more "$(cached z)" 100
stop_server
check "ends with success" rc_is 0

# A text whose file grows: what was on disk before the kill is there after it. Of an answer of one
# token nothing is computed, so each round begins with all of the one before.
rm -rf "$dir/cache"
kept_words=$words
words=start least=0
for round in 1 2 3 4 5 6; do
    serve --cache-dir "$dir/cache" --ctx 2048
    words+=$(printf ' round%d' "$round"{1..20})
    cached grown 1 >/dev/null &
    turn=$!
    sleep "0.0$((round * 2))"
    kill -9 "$server_pid"
    wait "$server_pid" "$turn" 2>/dev/null
    serve --cache-dir "$dir/cache" --ctx 2048
    last="a text after kill -9 in round $round" err=$(cat "$dir/serve.err")
    check "no file is wrong inside" eval '! err_has "checksum is wrong"'
    check "the rounds before are there" more "$(cached grown 1)" $((least - 1))
    least=$(sed -nE 's/.*"prompt_tokens":([0-9]+).*/\1/p' <<<"$out")
    least=$((least / 32 * 32))
    stop_server
    check "and all of it in one file" same "$(find "$dir/cache" -name '*.gmkv' | wc -l)" 1
done
words=$kept_words

# ---- disks ---------------------------------------------------------------------------------
if ! unshare -m true 2>/dev/null; then
    echo "skip: no mount namespace can be made here, so no full and no read-only disk is tried"
    finish
    exit
fi
export -f serve stop_server cached more check kept rc_is err_has same answer
export G MODEL dir words
unshare -m bash -c '
    passed=0 failed=0 rc=0 out= err= last=
    mount --make-rprivate /
    mkdir -p "$dir/full" "$dir/frozen"
    mount -t tmpfs -o size=64k tmpfs "$dir/full"
    serve --cache-dir "$dir/full"
    cached a >/dev/null
    check "a full disk: the cache in memory works" more "$(cached a)" 100
    stop_server
    check "it is said" err_has "cannot be written, and is kept in memory only: No space left"
    check "and costs nothing" rc_is 0
    check "nothing is left on it" same "$(find "$dir/full" -type f | wc -l)" 0
    serve --cache-dir "$dir/full"
    check "the next start works" same "$(cached b)" 0
    stop_server

    mount -t tmpfs tmpfs "$dir/frozen"
    serve --cache-dir "$dir/frozen"
    cached a >/dev/null
    stop_server
    mount -o remount,ro "$dir/frozen"
    serve --cache-dir "$dir/frozen"
    check "a disk that can only be read is read" more "$(cached a)" 100
    cached c >/dev/null
    check "and the rest is kept in memory" more "$(cached c)" 100
    stop_server
    check "it is said" err_has "Read-only file system"
    check "and costs nothing" rc_is 0
    echo "$passed $failed" >"$dir/counts"
'
read -r p f <"$dir/counts" || f=1
passed=$((passed + ${p:-0})) failed=$((failed + f))
finish
