#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# tests/vk/rdna3.sh [PREFIX]    every shader variant, compiled for a Radeon 780M without one
#
# Prints one line a variant with the figures of RADV's compiler, fails where tests/vk/rdna3.gates
# is not met, and models decoding from the q4_0 mat-vec. PREFIX takes only the modules whose names
# begin so. docs/VULKAN.md, "Checked without the hardware", explains the columns.
set -u
cd "$(dirname "$0")/../.." || exit 1
program=build/release/tests/vk/rdna3
[ -x "$program" ] || { echo "$program is not there; make check-rdna3 builds it"; exit 1; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

scripts/vulkan-env phoenix "$program" "$@" >"$tmp/table" 2>"$tmp/err" || { cat "$tmp/err"; exit 1; }
grep RADV "$tmp/err"

awk -F '\t' -f tests/vk/rdna3.awk tests/vk/rdna3.gates "$tmp/table"
