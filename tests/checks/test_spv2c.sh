#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The manifest of shaders: a good one becomes rules and a table, and what a row cannot mean is
# refused with its line.
set -u
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

verdict() { # ok? what
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
        cat "$tmp/out"
    fi
}

spv2c() { # rules|table row...
    local what=$1
    shift
    printf '%s\n' '# a manifest' "$@" >"$tmp/manifest.txt"
    scripts/spv2c "$what" "$tmp/manifest.txt" "$tmp" >"$tmp/out" 2>&1
}

says() { # words
    grep -qF -e "$1" "$tmp/out"
    verdict $? "spv2c does not say: $1"
}

refuses() { # words row...
    if spv2c rules "${@:2}"; then verdict 1 "spv2c accepts: ${*:2}"; else says "manifest.txt:2: $1"; fi
}

spv2c rules 'mul mul.comp q4_*,f16 int_dot8,f16 ROWS=4;1,4 LANES=64;32,64 yes'
says "SPV := $tmp/mul.f16.spv $tmp/mul.q4_0.spv $tmp/mul.q4_1.spv $tmp/mul.q4_k.spv"
says "$tmp/mul.q4_k.spv: $tmp/mul.comp"
says 'mul.q4_0.spv: private DEFINES := -DPIPELINE_MUL=1 -DTYPE=2 -DTYPE_Q4_0=1 -DNEEDS_INT_DOT8=1 -DNEEDS_F16=1 -DID_ROWS=0 -DID_LANES=1'
spv2c table 'add add.comp - - yes'
says 'add.spv is not there'
printf '12345678' >"$tmp/add.spv"
printf '1234' >"$tmp/mul.f16.spv"
spv2c table 'add add.comp - - yes' 'mul mul.comp f16 int_dot8 ROWS=4;1,4 no'
says '{"add", "add", GM_VK_NO_TYPE, 0, true, 0, NULL, 2, words + 0}'
says '{"mul.f16", "mul", GM_QTYPE_F16, GM_VK_NEEDS_INT_DOT8, false, 1, spec_3, 1, words + 2}'
says '{"ROWS", 4, 2, legal_3_0}'

refuses 'a row has 4 words' 'mul mul.comp - yes'
refuses 'a pipeline is named Mul' 'Mul mul.comp - - yes'
refuses 'exact is ROWS=4;4' 'mul mul.comp - - ROWS=4;4'
refuses 'a spec constant is ROWS=4' 'mul mul.comp - - ROWS=4 yes'
refuses 'ROWS has the default 3' 'mul mul.comp - - ROWS=3;1,2 yes'
refuses 'no type is named by q9' 'mul mul.comp q9 - yes'
spv2c rules 'mul mul.comp q8_0 - yes' 'mul mul.comp q8* - yes'
says 'manifest.txt:3: there are two modules mul.q8_0'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
