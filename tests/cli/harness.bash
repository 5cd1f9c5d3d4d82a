# SPDX-License-Identifier: MIT
#
# What the tests of the command line share; they source it. It makes a folder $dir, which goes when
# the test ends, and a tiny model $dir/tiny.gguf. $G is the program.
set -u
G=$(realpath "${GEMMULE:-build/release/gemmule}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/gemmule-cli.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
exec </dev/null
export XDG_CACHE_HOME=$dir/cache # what is found out about devices does not go into the user's
passed=0 failed=0 last=

# Runs a command; keeps its exit status in $rc, what it wrote in $out and $err, newlines and all
# (but no NUL, which a variable cannot hold).
try() { # command...
    last="$*"
    "$@" >"$dir/.out" 2>"$dir/.err"
    rc=$?
    kept
}
kept() {
    out=$(tr -d '\0' <"$dir/.out"; echo .) out=${out%.}
    err=$(tr -d '\0' <"$dir/.err"; echo .) err=${err%.}
}

# One assertion about the last command.
check() { # what it says, command that should succeed...
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n  command: %s\n  exit %s\n  stdout: %s\n  stderr: %s\n' \
            "$1" "$last" "$rc" "${out:0:2000}" "${err:0:2000}"
    fi
}

rc_is() { [ "$rc" = "$1" ]; }
out_is() { [ "$out" = "$1" ]; }
out_has() { [[ $out == *"$1"* ]]; }
out_matches() { [[ $out =~ $1 ]]; }
err_has() { [[ $err == *"$1"* ]]; }
err_is() { [ "$err" = "$1" ]; }
same() { [ "$1" = "$2" ]; }

works() { # command...
    try "$@"
    check "should succeed" rc_is 0
}

# Refused with one sentence, and nothing on standard output.
refused() { # exit status, words of the sentence, command...
    try "${@:3}"
    check "should exit with $1" rc_is "$1"
    check "should say: $2" err_has "$2"
    check "should begin with the program's name" eval '[[ $err == "gemmule: "* ]]'
    check "should be one line" same "$(wc -l <"$dir/.err")" 1
    check "should print nothing" out_is ''
}

finish() {
    echo "$passed passed, $failed failed"
    [ $failed = 0 ]
}

newline=$'\n'
tiny=$dir/tiny.gguf
note="gemmule: note: this model's weights are random: its words mean nothing$newline"
works "$G" synth "$tiny"
[ "$rc" = 0 ] || { finish; exit 1; }
