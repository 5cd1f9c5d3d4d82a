#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A 1B checkpoint of 2 GB is converted inside a memory cgroup of 1 GiB, where one can be made, and with
# at most 512 MiB of memory of its own everywhere (RLIMIT_DATA bounds what is allocated or mapped
# privately). The result is compared with one made without limits.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
"$G" synth "$dir/1b.gguf" --size 1b --type bf16 2>/dev/null
cap() { ulimit -d $((512 << 10)) && exec "$@"; }

# A cgroup of our own, version 2 or 1; its folder goes to $group, and its limit is set.
group=
for at in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -n "$group" ] || ! mkdir "$at/gemmule.$$" 2>/dev/null || group=$at/gemmule.$$
    [ -z "$group" ] || break
done
if [ -n "$group" ]; then
    trap 'rm -rf "$dir"; rmdir "$group" 2>/dev/null' EXIT
    echo $((1 << 30)) >"$group/memory.max" 2>/dev/null ||
        echo $((1 << 30)) >"$group/memory.limit_in_bytes" 2>/dev/null ||
        { rmdir "$group"; group=; }
fi
enter() { # command...
    [ -z "$group" ] || echo $BASHPID >"$group/cgroup.procs" || exit 1
    cap "$@"
}
[ -n "$group" ] || echo "skip: no memory cgroup can be made here; RLIMIT_DATA alone holds memory"

for type in q4_0 q4_k_m; do
    last="convert --type $type with 1 GiB"
    (enter "$G" convert "$dir/1b.gguf" "$dir/small.gguf" --type $type --force) >"$dir/.out" 2>"$dir/.err"
    rc=$? && kept
    check "fits" rc_is 0
    if [ -n "$group" ]; then
        failures=$(cat "$group/memory.events" 2>/dev/null | sed -n 's/^oom_kill //p')
        check "nothing was killed" same "${failures:-0}" 0
    fi
done
works "$G" convert "$dir/1b.gguf" "$dir/large.gguf" --type q4_k_m
check "the same file as without limits" cmp "$dir/small.gguf" "$dir/large.gguf"
finish
