#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What a chat takes at most (VmHWM) is the file, the KV cache, and 5 % or 64 MB beside them, after a
# message of several chunks and an answer to it.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
[[ $G == */release/* ]] || { echo "skip: $G may not be a release build, whose memory is counted"; exit 77; }

model=$dir/270m.gguf ctx=4096
works "$G" synth "$model" --size 270m --type q4_0
works "$G" inspect "$model" --json
kv=$(grep -oE "\"ctx\":$ctx,\"bytes\":[0-9]+" "$dir/.out" | grep -oE '[0-9]+$')
check "inspect knows the KV cache" test "${kv:-0}" -gt 0
file=$(stat -c %s "$model")

# The chat stays alive behind its answer until the pipe is closed.
mkfifo "$dir/fifo"
"$G" chat -m "$model" --ctx $ctx --max-tokens 8 --temp 0 <"$dir/fifo" >"$dir/.out" 2>"$dir/.err" &
chat=$!
exec 3>"$dir/fifo"
seq -s ' ' 600 >&3
while kill -0 $chat 2>/dev/null && ! grep -q . "$dir/.out"; do sleep 0.1; done
peak=$(awk '/^VmHWM/ { print 1024 * $2 }' "/proc/$chat/status")
exec 3>&-
wait $chat
rc=$? last="$G chat"
kept
check "the chat answers" rc_is 0
spare=$((file / 20 > 64000000 ? file / 20 : 64000000))
echo "VmHWM $peak bytes; file $file, KV cache $kv, spare $spare"
check "memory is file, KV cache and little else" test "${peak:-0}" -gt 0 -a "${peak:-0}" -le $((file + kv + spare))
finish
