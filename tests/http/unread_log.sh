#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A log that nobody reads: a full pipe keeps neither requests nor signals waiting.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
. tests/http/harness.bash

# So many requests, whose lines are more than a pipe holds; answers how many were answered.
ask() { curl -s -m 60 -o /dev/null -w '%{http_code}\n' "$url/health?[1-$1]" | grep -c 200; }
# Adds what is in the pipe to $dir/read.
take() { dd iflag=nonblock bs=64k <&7 >>"$dir/read" 2>/dev/null; }
dropped() { sed -nE 's/^gemmule: note: .*: ([0-9]+) lines were dropped$/\1/p' "$dir/read"; }
all_told() { # lines that were written, or said to be dropped
    local i
    for ((i = 0; i < 200; i++)); do
        take
        [ $(($(grep -c '^{' "$dir/read") + $(dropped | awk '{ n += $1 } END { print n + 0 }'))) = "$1" ] && return
        sleep 0.05
    done
    return 1
}

mkfifo "$dir/pipe"
exec 7<>"$dir/pipe"
serve_log=$dir/pipe
serve --ctx 256
last='a log that nobody reads' rc=0 out='' err=''
check "everybody is answered" same "$(ask 1500)" 1500
take
check "and whoever comes when it is read again" same "$(ask 1)" 1
check "every line is there or counted" all_told 1501
check "some were dropped" eval '[ "$(dropped | head -n 1)" -gt 100 ]'
check "and no line is broken" same "$(grep -cv -e '^{.*}$' -e '^gemmule: note: ' "$dir/read")" 0
ask 1500 >/dev/null
stop_server
check "SIGTERM ends it" rc_is 0
finish
