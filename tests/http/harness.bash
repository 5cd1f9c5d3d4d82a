# SPDX-License-Identifier: MIT
#
# What the tests of the server share; they source it after tests/cli/harness.bash, which makes $dir.
# MODEL is what is served: $GEMMULE_MODEL, or else the bundled one.
MODEL=${GEMMULE_MODEL:-models/gemmule-mini.gguf}
server_pid=

# Starts a server on a free port and waits until it is ready: $port, $url, $server_pid. Its log goes
# to $serve_log, where that is set.
serve() { # options...
    : >"$dir/serve.out" >"$dir/serve.err"
    "$G" serve -m "$MODEL" --port 0 "$@" >"$dir/serve.out" 2>"${serve_log:-$dir/serve.err}" &
    server_pid=$!
    local i
    for ((i = 0; i < 600; i++)); do
        grep -q ' on http' "$dir/serve.out" && break
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.1
    done
    port=$(sed -nE 's|.* on https?://[^ ]*:([0-9]+),.*|\1|p' "$dir/serve.out")
    url=http://127.0.0.1:$port
    [ -n "$port" ] || { cat "$dir/serve.err"; echo "the server did not start"; exit 1; }
}

# Ends the server with a signal; its exit status is $rc.
stop_server() { # [signal]
    kill -"${1:-TERM}" "$server_pid"
    wait "$server_pid"
    rc=$? last="gemmule serve" out=$(cat "$dir/serve.out") err=$(tail -n 20 "$dir/serve.err")
    server_pid=
}
trap '[ -z "$server_pid" ] || kill -9 "$server_pid" 2>/dev/null; rm -rf "$dir"' EXIT

# Puts the openai package into build/http, once. Skips the test where npm cannot.
need_client() {
    local at=build/http
    mkdir -p $at
    (
        flock 9
        cmp -s tests/http/package-lock.json $at/package-lock.json && [ -d $at/node_modules/openai ] && exit 0
        cp tests/http/package.json tests/http/package-lock.json $at/ &&
            npm ci --prefix $at --no-audit --no-fund --ignore-scripts >$at/npm.log 2>&1
    ) 9>$at/lock && return
    echo "skip: npm could not install the openai package: $(tail -n 1 $at/npm.log)"
    exit 77
}
