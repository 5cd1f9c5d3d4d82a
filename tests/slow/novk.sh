#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A build without Vulkan (make VULKAN=0) runs, and says why it has no Vulkan backend.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
make -s JOBS=1 CONFIG=debug VULKAN=0 all || exit 1
G=build/debug/gemmule

works "$G" run --seed 1 --max-tokens 4 hello
refused 1 "vulkan: this build has no Vulkan backend (VULKAN=0)" "$G" run --backend vulkan hello
works "$G" --version
check "should list the backend" out_has "vulkan   not in this build$newline"
works "$G" devices
check "should not send anybody for drivers" out_is "none: vulkan: this build has no Vulkan backend (VULKAN=0)$newline"
finish
