#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The driver itself: what counts as passed, failed and skipped, and what is shown of it.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0

expect() { # words in the output, exit status, command...
    local out status
    out=$(TEST_TIMEOUT=2 tests/run "${@:3}" 2>&1)
    status=$?
    if [ $status = "$2" ] && grep -qxF -e "$1" <<<"$out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: tests/run %s\nexit %d, expected %d with the line: %s\n%s\n' \
            "${*:3}" $status "$2" "$1" "$out"
    fi
}

cmocka() { # passed failed skipped: the last lines of a cmocka program, as a command
    printf 'printf "[  PASSED  ] %d test(s).\\n[  FAILED  ] %d test(s), listed below:\\n' "$1" "$2"
    printf '[  SKIPPED ] %d test(s), listed below:\\n"; exit %d' "$3" "$2"
}

expect '2 passed, 0 failed' 0 true 'test -f Makefile'
expect '1 passed, 1 failed' 1 true 'exit 3'
expect '---- FAILED (exit 3): echo why; exit 3' 1 'echo why; exit 3'
expect 'why' 1 'echo why; exit 3'
expect '0 passed, 0 failed, 1 skipped' 0 'echo "skip: no folder"; exit 77'
expect 'skipped in echo "skip: a|b&"; exit 77: a|b&' 0 'echo "skip: a|b&"; exit 77'
expect '3 passed, 2 failed, 1 skipped' 1 "$(cmocka 3 2 1)"
expect '8 passed, 1 failed' 1 "$(cmocka 4 0 0)" 'echo 4 passed, 1 failed; exit 1'
expect '4 passed, 1 failed' 1 "$(cmocka 4 0 0)9"
expect 'no end after 2 seconds' 1 'sleep 30'
expect 'ended by signal 11' 1 'kill -SEGV $$'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
