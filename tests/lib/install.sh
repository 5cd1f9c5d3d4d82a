#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What `make install` puts in place is all that a program needs: the examples are built there by the
# commands they name, with the shared library and with the archive, and do what they say.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
usr=$dir/usr
version=$(sed -n 's/^#define GM_VERSION "\(.*\)"/\1/p' include/gemmule.h)

files() { (cd "$1" && find . ! -type d | sort); }
needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | paste -sd ' '; }
export PKG_CONFIG_PATH=$usr/lib/pkgconfig

# The files, and nothing more.
works make -s install PREFIX="$usr"
[ "$rc" = 0 ] || { finish; exit 1; }
check "says nothing" same "$out$err" ''
try files "$usr"
check "every file in its place" out_is "$(sort <<END
./bin/gemmule
./include/gemmule.h
./include/gemmule_tools.h
./lib/libgemmule.a
./lib/libgemmule.so
./lib/libgemmule.so.${version%%.*}
./lib/libgemmule.so.$version
./lib/pkgconfig/gemmule.pc
./share/doc/gemmule/CHANGELOG.md
./share/doc/gemmule/LICENSE
./share/doc/gemmule/README.md
$(printf './share/doc/gemmule/%s\n' docs/*.md)
./share/doc/gemmule/examples/batch.c
./share/doc/gemmule/examples/hello.c
./share/doc/gemmule/examples/topk.c
./share/gemmule/gemmule-draft.gguf
./share/gemmule/gemmule-mini.gguf
END
)$newline"
placed=$out
check "the links lead to the library" same "$(realpath "$usr/lib/libgemmule.so")" \
    "$(realpath "$usr/lib/libgemmule.so.$version")"
try readelf -d "$usr/lib/libgemmule.so"
check "its name has the major version" out_has "soname: [libgemmule.so.${version%%.*}]"
check "it needs little" same "$(needs "$usr/lib/libgemmule.so")" 'libc.so.6 libjansson.so.4 libm.so.6'
works scripts/check-symbols . "$usr/lib"
for lib in $(needs "$usr/bin/gemmule"); do
    check "the program needs $lib" eval '[[ $lib =~ ^(libc|libm|libjansson|libedit|libmicrohttpd)\.so\. ]]'
done
try ldd "$usr/bin/gemmule"
check "and finds it" eval '[[ $out != *"not found"* ]]'

# The model is found wherever the tree lies, and its absence is said.
try "$usr/bin/gemmule" run --json --max-tokens 5 Hello
check "the installed model is used" out_has "{\"model\":\"$(realpath "$usr/share/gemmule/gemmule-mini.gguf")\""
cp -r "$usr" "$dir/moved"
rm "$dir/moved/share/gemmule/gemmule-mini.gguf"
refused 1 'gemmule-mini.gguf, is neither in ' "$dir/moved/bin/gemmule" run Hello
refused 1 '(-m MODEL; inspect: FILE)' "$dir/moved/bin/gemmule" inspect

# A package's folder, and back.
works make install DESTDIR="$dir/stage" PREFIX=/opt/gemmule
for folder in bin include lib share/doc/gemmule/docs share/gemmule; do
    check "it says what has gone to" out_has "  PUT   $dir/stage/opt/gemmule/$folder$newline"
done
try files "$dir/stage/opt/gemmule"
check "the same files before a folder" out_is "$placed"
check "which the installed files do not name" eval '! grep -q "$dir" "$dir/stage/opt/gemmule/lib/pkgconfig/gemmule.pc"'
works make -s uninstall DESTDIR="$dir/stage" PREFIX=/opt/gemmule
try files "$dir/stage"
check "uninstall leaves no file" out_is ''
check "nor a folder of its own" test ! -e "$dir/stage/opt/gemmule/share/doc/gemmule" -a \
    ! -e "$dir/stage/opt/gemmule/share/gemmule"

# One version, four times.
works pkg-config --modversion gemmule
check "pkg-config's" out_is "$version$newline"
works "$usr/bin/gemmule" --version
check "the program's" out_matches "^gemmule $version$newline"
cat >"$dir/version.c" <<'END'
#include <gemmule.h>
#include <gemmule_tools.h>
#include <stdio.h>
int main(void)
{
    return puts(GM_VERSION) < 0 || puts(gm_version()) < 0;
}
END

# The headers are plain C and plain C++, to every compiler that is here.
headers() { # compiler standard language
    command -v "$1" >/dev/null || { echo "skip: $1 is not here, so it has not seen the headers"; return; }
    # shellcheck disable=SC2046 # pkg-config prints words
    works "$1" -x "$3" "-std=$2" -Wall -Wextra -Wpedantic -Werror -o "$dir/version" "$dir/version.c" \
        $(pkg-config --cflags --libs gemmule)
    works env LD_LIBRARY_PATH="$usr/lib" "$dir/version"
    check "the header's and the library's version" out_is "$version$newline$version$newline"
}
for compiler in gcc clang; do
    for standard in c99 c11; do headers $compiler $standard c; done
done
for compiler in g++ clang++; do headers $compiler c++11 c++; done

# The examples, by the command in their own comment.
cp "$usr/share/doc/gemmule/examples/"*.c "$dir"
export LD_LIBRARY_PATH=$usr/lib
examples() { # what pkg-config is asked
    local name line
    for name in hello topk batch; do
        line=$(sed -n 's/^ \*  *\(cc .*\)/\1/p' "$dir/$name.c")
        check "$name.c says how to build it" test -n "$line"
        works env -C "$dir" bash -c "${line/--libs/$1}"
        check "without a word" err_is ''
    done

    works "$dir/hello" "$tiny"
    local answer=$out
    check "hello answers" test "${#answer}" -gt 1
    try "$usr/bin/gemmule" run -m "$tiny" --seed 0 --max-tokens 256 Hello
    check "hello answers as the program does" out_is "$answer"
    works "$dir/hello" "$tiny" 'Hello there'
    check "and to what it is asked" eval '[ "$out" != "$answer" ]'
    try "$dir/hello" "$dir/nothing.gguf"
    check "no model is a failure" rc_is 1
    check "with a reason" err_has "hello: $dir/nothing.gguf: "
    check "and no answer" out_is ''

    works "$dir/topk" "$tiny" 'Once upon'
    local ids
    ids=$(awk '{ print $3 }' "$dir/.out" | paste -sd ' ')
    check "topk shows ten tokens" same "$(wc -w <<<"$ids")" 10
    try "$usr/bin/gemmule" logits -m "$tiny" --backend auto --json 'Once upon'
    check "topk shows the tokens that logits shows" same "$ids" \
        "$(grep -oE '"id":[0-9]+' "$dir/.out" | cut -d: -f2 | paste -sd ' ')"

    works "$dir/batch" "$tiny" one
    local alone=$out
    works "$dir/batch" "$tiny" one two three
    check "batch goes around" same "$(grep -oE '^[0-9]+: ' "$dir/.out" | head -n 6 | paste -sd '')" \
        '1: 2: 3: 1: 2: 3: '
    check "every answer ends" same "$(grep -c ' tokens)$' "$dir/.out")" 3
    check "an answer is the same in a crowd" same "$(grep '^1: ' "$dir/.out")" "$(grep '^1: ' <<<"$alone")"
    # shellcheck disable=SC2046 # so many words
    try "$dir/batch" "$tiny" $(seq 17)
    check "too many is a mistake" rc_is 2
}
examples --libs
check "the shared library is used" eval '[[ $(needs "$dir/hello") == *libgemmule.so.${version%%.*}* ]]'
rm "$usr"/lib/libgemmule.so*
examples '--libs --static'
check "the archive is enough" eval '[[ $(needs "$dir/hello") != *libgemmule* ]]'
finish
