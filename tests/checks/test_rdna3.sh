#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The gates of tests/vk/rdna3.awk, each of which can fail, and its model of decoding.
set -u
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

printf '%s\n' '# a comment' 'mul* 8 32768 32768 0 1 4 -' 'mma 4 0 32768 - - - 1' >"$tmp/gates"
head='variant\twave\tvgprs\tspills\tscratch\twaves\tlds\tcode\tloads\tb128\tdot4\twmma\tnarrow\tdrains\tldot4\tvalu\tvopd\tlatency\tcycles'

says() { # 0|1 words row: the exit status and words of the judgement
    printf '%b\n' "$head" "$3" >"$tmp/table"
    awk -F '\t' -f tests/vk/rdna3.awk "$tmp/gates" "$tmp/table" >"$tmp/out" 2>&1
    if [ $? = "$1" ] && grep -qF -e "$2" "$tmp/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: expected $1 and: $2"
        cat "$tmp/out"
    fi
}

#                       wave vgprs spill scr waves lds code loads b128 dot4 wmma narrow drains ldot4 valu ...
says 0 '1 passed, 0 failed' 'mul.q4_0 LANES=64\t64\t32\t0\t0\t8\t32768\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'mul A=1: spills is 1' 'mul A=1\t64\t32\t1\t0\t16\t0\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'scratch is 16' 'mul\t64\t32\t0\t16\t16\t0\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'waves is 7, at least 8' 'mul\t64\t32\t0\t0\t7\t0\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'lds is 32769, at most 32768' 'mul\t64\t32\t0\t0\t16\t32769\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'code is 32769' 'mul\t64\t32\t0\t0\t16\t0\t32769\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'narrow is 1' 'mul\t64\t32\t0\t0\t16\t0\t344\t2\t2\t4\t0\t1\t1\t4\t14\t0\t1\t1'
says 1 'drains is 2' 'mul\t64\t32\t0\t0\t16\t0\t344\t2\t2\t4\t0\t0\t2\t4\t14\t0\t1\t1'
says 1 'dot4 is 3, at least 4' 'mul\t64\t32\t0\t0\t16\t0\t344\t2\t2\t3\t0\t0\t1\t3\t14\t0\t1\t1'
says 1 'wmma is 0, at least 1' 'mma\t32\t32\t0\t0\t16\t0\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'
says 1 'the driver refuses it' 'mul\trefused'
says 1 'no row of the gates fits' 'add\t64\t32\t0\t0\t16\t0\t344\t2\t2\t4\t0\t0\t1\t4\t14\t0\t1\t1'

# 32 weights a lane and turn, 20 instructions: 27.01e9 / 2048 turns of 40 cycles are 8.1 ms on 24 SIMDs.
printf '%s\n' '* - - - - - - -' >"$tmp/gates"
says 0 '8.1 ms    4.69 of  4.69    5.75 of  5.76' \
    'matmul.q4_0 A=1 NC=1 B=1 AFTER=0 C=1\t64\t32\t0\t0\t16\t0\t344\t2\t2\t8\t0\t0\t1\t8\t20\t0\t1\t1'
says 0 'no decode model' 'matmul.q4_0 A=1 NC=4 B=1 AFTER=0 C=1\t64\t32\t0\t0\t16\t0\t344\t2\t2\t8\t0\t0\t1\t8\t20\t0\t1\t1'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
