#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each check of scripts/ passes a good tree and fails each of the bad ones, with the words that
# tell what is wrong and where. A bad tree is the good one with one file changed.
set -u
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

good() { # a fresh good tree in $tmp/tree
    rm -rf "$tmp/tree"
    mkdir -p "$tmp/tree"/{src/base,src/quant,src/backend/ref,src/backend/cpu,include,programs,scripts}
    cd "$tmp/tree" || exit 1
    write include/gemmule.h '#ifndef GEMMULE_H' '#define GEMMULE_H' 'int gm_one(void);' '#endif'
    write src/base/mem.h '#ifndef GM_MEM_H' '#define GM_MEM_H' 'void gm_mem_free(void *p);' '#endif'
    write src/base/mem.c '#include "base/mem.h"' '' '#include <stdlib.h>' '' \
        'void gm_mem_free(void *p)' '{' '    free(p);' '}'
    write src/quant/row.c '#include "base/mem.h"' '#include "gemmule.h"' '' \
        '/* strcpy(a, b); in a comment, and "malloc(" in a literal, are no calls. */' \
        'static const char *const names[] = {"malloc(1)", "exit(1)"};' '' \
        'int gm_one(void)' '{' '    return names[0][0];' '}'
    write src/backend/lower.h '#ifndef GM_LOWER_H' '#define GM_LOWER_H' 'int gm_low(int a, int b);' '#endif'
    write src/backend/ref/ref.c '#include "backend/lower.h"' '' \
        'int gm_low(int a, int b)' '{' '    return a + b;' '}'
    write programs/main.c '#include "gemmule.h"' '' 'int main(void)' '{' '    return gm_one();' '}'
}

write() { # file line...
    local file=$1
    shift
    printf '%s\n' '/* SPDX-License-Identifier: MIT */' "$@" >"$file"
}

verdict() { # ok? what
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
        cat "$tmp/out"
    fi
}

accepts() { # check argument...
    "$root/scripts/check-$1" "${@:2}" >"$tmp/out" 2>&1
    verdict $? "check-$1 refuses the good tree"
}

refuses() { # check words argument...
    if "$root/scripts/check-$1" "${@:3}" >"$tmp/out" 2>&1; then
        verdict 1 "check-$1 accepts what should fail with: $2"
    else
        grep -qF -e "$2" "$tmp/out"
        verdict $? "check-$1 does not say: $2"
    fi
}

body() { # name statement...: a source with one function
    printf '%s\n' "int gm_$1(void);" "int gm_$1(void)" '{' "${@:2}" '    return 0;' '}'
}

lines() { for ((i = 0; i < $1; i++)); do echo "$2"; done; }

tree=$tmp/tree
try() { # check words file line...: the good tree with one file written over
    good
    write "${@:3}"
    refuses "$1" "$2" "$tree"
}

good
for check in style layers names size headers warnings analysis; do accepts $check "$tree"; done

try style "src/base/x.c:3" src/base/x.c '' 'int  gm_x;'
try style "not ASCII" src/base/x.c $'/* caf\xc3\xa9 */'
try style "white space" src/base/x.c 'int gm_x; '
try style "a note" src/base/x.c "/* TO""DO: finish */"
for call in 'strcpy(a, b)' 'strcat(a, b)' 'sprintf(a, b)' 'atoi(a)' 'strtok(a, b)' 'alloca(9)' 'gets(a)'; do
    try style "programs/x.c:2:    $call;    <- unsafe function" programs/x.c "    $call;"
done
for call in 'abort()' 'exit(1)' '_exit(1)' 'printf(a)' 'fprintf(a, b)' 'puts(a)' 'getenv(a)'; do
    try style "src/base/x.c:2:    $call;    <- the library does not" src/base/x.c "    $call;"
done
for call in 'malloc(1)' 'calloc(1, 1)' 'realloc(a, 1)' 'free(a)'; do
    try style "src/base/x.c:2:    $call;    <- only base/mem.c" src/base/x.c "    $call;"
done
try style "src/base/x.c:5:#if" src/base/x.c 'int gm_x(void)' '{' '    int a = 0;' '#if 1' '    a++;' '#endif' '}'
good
echo 'int gm_x;' >src/base/x.c
refuses style "src/base/x.c:1:int gm_x;    <- the first line" "$tree"
good
printf '#!/bin/sh\ntrue\n' >scripts/x
refuses style "scripts/x:1:" "$tree"

try layers 'src/base/x.c:2: includes "quant/row.h"' src/base/x.c '#include "quant/row.h"'
try layers 'a lower one' src/quant/x.c '#include "engine/x.h"'
try layers 'sibling' src/backend/ref/x.c '#include "backend/cpu/x.h"'
try layers 'sibling or child' src/backend/x.c '#include "backend/cpu/x.h"'
try layers 'a lower one' src/backend/ref/x.c '#include "text/vocab.h"'
try layers 'own headers only' programs/x.c '#include "base/mem.h"'
try layers 'stands alone' include/x.h '#include "base/mem.h"'
try layers 'name it from src/' src/base/x.c '#include "mem.h"'
try layers 'without ..' src/base/x.c '#include "../quant/row.h"'
try layers 'only toolbox' src/base/x.c '#include "gemmule_tools.h"'
try layers 'has no rank' src/base/x.c '#include "nowhere/x.h"'
good
mkdir src/nowhere
write src/nowhere/x.c 'int gm_x;'
refuses layers 'src/nowhere/x.c:1: folder nowhere has no rank' "$tree"

try names 'src/quant/mem.h:1: has the name of src/base/mem.h' src/quant/mem.h 'int gm_x;'
try names 'says nothing' src/base/str_utils.c 'int gm_x;'

mapfile -t long < <(body long "$(lines 97 '    gm_one();')")
try size 'src/base/x.c:3: function gm_long (in lines) has 101' src/base/x.c "" "${long[@]:1}"
good
write src/quant/x.c "${long[@]}"
accepts size "$tree"
mapfile -t long < <(body long "$(lines 147 '    gm_one();')")
try size 'function gm_long (in lines) has 151, at most 150' src/quant/x.c "" "${long[@]:1}"
try size 'src/base/x.c:1001: the file (in lines) has 1001' src/base/x.c "$(lines 1000 'int gm_x;')"
try size 'has 301, at most 300' src/base/x.h "$(lines 300 'int gm_x;')"
try size 'src/base/x.comp:301: a shader' src/base/x.comp "$(lines 300 'int x;')"
try style 'more than 100 columns' src/base/x.glsl "$(printf '%0101d' 0)"
try size 'has 601, at most 600' include/gemmule.h "$(lines 600 'int gm_x;')"
try size 'the parameter list of gm_many has 8, at most 7' src/base/x.h \
    'int gm_many(int a, int b, int c, int d,' '            int e, int f, int g, void (*h)(int, int));'
try size 'has 8, at most 7' src/base/x.h \
    'struct gm_ops {' '    int (*many)(int, int, int, int, int, int, int, int);' '};'

try headers 'src/base/x.h' src/base/x.h 'size_t gm_x(void);'
try headers 'redefinition' src/base/x.h 'struct gm_x {' '    int a;' '};'
try warnings 'src/base/x.c:2' src/base/x.c 'int gm_x(int unused)' '{' '    return 0;' '}'
try analysis 'Dereference of null pointer' src/base/x.c 'int gm_x(void);' 'int gm_x(void)' '{' \
    '    int *p = 0;' '    return *p;' '}'

good
libraries() { # line...: one source, as an archive and as a shared library
    local cc=${GCC:-gcc}
    rm -f "$tmp"/libgemmule.*
    printf '%s\n' "$@" | "$cc" -fPIC -c -x c -o "$tmp/x.o" - && ar rcs "$tmp/libgemmule.a" "$tmp/x.o" &&
        "$cc" -shared -o "$tmp/libgemmule.so" "$tmp/x.o"
}
libraries 'static const char *const names[] = {"a"};' 'int gm_one(void) { return names[0][0]; }'
accepts symbols "$tree" "$tmp"
libraries 'int one(void) { return 1; }'
refuses symbols 'one is external and does not begin with gm_' "$tree" "$tmp"
libraries 'static int state;' 'int gm_one(void) { return ++state; }'
refuses symbols 'state can be written to (.bss)' "$tree" "$tmp"
libraries 'int gm_state = 1;'
refuses symbols 'gm_state can be written to (.data)' "$tree" "$tmp"
libraries '_Thread_local int gm_state;'
refuses symbols 'gm_state can be written to (.tbss)' "$tree" "$tmp"
libraries 'int gm_one(void) { return 1; }' 'int gm_two(void) { return 2; }'
refuses symbols 'gm_two is exported, and no public header declares it' "$tree" "$tmp"
libraries '__attribute__((visibility("hidden"))) int gm_one(void) { return 1; }'
refuses symbols 'gm_one is declared in a public header, and not exported' "$tree" "$tmp"
refuses symbols 'is not there' "$tree" "$tmp/none"

commit() { git -c user.name=t -c user.email=t@t -C "$tree" commit -q --allow-empty -m "$1" >/dev/null 2>&1; }
good
git -C "$tree" init -q
commit 'base: add the ground floor'
accepts commits "$tree"
commit 'Fixed things.'
refuses commits '"Fixed things." is not of the form' "$tree"
commit "base: $(lines 70 x | tr -d '\n')"
refuses commits 'has 76 characters, at most 72' "$tree" HEAD^..HEAD

for check in style layers names size headers warnings analysis; do
    mkdir -p "$tmp/empty"
    refuses $check 'there is no' "$tmp/empty"
done

echo "$passed passed, $failed failed"
[ $failed = 0 ]
