#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# HTTP as curl sees it: statuses, headers, keys, TLS, CORS, limits, signals, the log.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
. tests/http/harness.bash

json='Content-Type: application/json'
hello='{"model":"gemma-3-27b-pure-hardware","messages":[{"role":"user","content":"Hello"}]}'

# A request: $status, $out (the body) and $head (the headers, in small letters).
get() { # path, curl options...
    last="curl $*"
    status=$(curl -sS -m 60 -o "$dir/.out" -D "$dir/.head" -w '%{http_code}' "$url$1" "${@:2}" 2>"$dir/.err")
    rc=$?
    kept
    head=$(tr -d '\r' <"$dir/.head" | tr 'A-Z' 'a-z')
}
status_is() { [ "$status" = "$1" ]; }
head_has() { [[ $head == *"$1"* ]]; }
head_lacks() { [[ $head != *"$1"* ]]; }
is_error() { # status
    check "should be $1" status_is "$1"
    check "should be an error object" out_matches '^\{"error":\{"message":".+","type":"[a-z_]+","param":.+,"code":.+\}\}$'
    check "should be JSON" head_has 'content-type: application/json'
    check "should have an id" eval '[[ $head =~ x-request-id:\ ([a-z]+-[0-9a-f]{24}) ]]'
    check "which the log has" wait_for grep -q "\"id\":\"${BASH_REMATCH[1]}\".*\"status\":$1" "$dir/serve.err"
}
metric() { curl -s "$url/metrics" "${@:2}" | sed -n "s/^gemmule_$1 //p"; }
wait_for() { # command...
    local i
    for ((i = 0; i < 200; i++)); do "$@" && return; sleep 0.05; done
    return 1
}

# ---- what is there -------------------------------------------------------------------------
serve --ctx 512
get /health
check "healthy" status_is 200
check "has an id" head_has 'x-request-id: req-'
check "says so" out_has '"status":"ok"'
get /v1/chat/completions -d "$hello" -H "$json"
check "the founding documents' request works" status_is 200
check "with an answer" out_has '"finish_reason":"'
get /v1/models
check "models" out_has '"object":"list"'
check "with the context's length" out_has '"context_length":512'
id=$(sed -nE 's/.*"data":\[\{"id":"([^"]*)".*/\1/p' "$dir/.out")
get "/v1/models/${id// /%20}"
check "one model" status_is 200
get /v1/models/none
is_error 404
check "with OpenAI's code" out_has '"code":"model_not_found"'
get /props
check "properties" out_has '"default_sampling":{"temperature":'
get /metrics
check "metrics are text" head_has 'content-type: text/plain; version=0.0.4'
check "histograms" out_matches 'gemmule_time_to_first_token_seconds_bucket\{le="\+Inf"\} 1'
check "batches" out_has 'gemmule_batch_size_count'
get /tokenize -H "$json" -d '{"content":"Hello <start_of_turn>","add_special":true,"with_pieces":true}'
check "tokens with pieces" out_matches '^\{"tokens":\[\{"id":2,"piece":"<bos>"\}.*"<start_of_turn>"\}\],"count":[0-9]+\}$'
get /tokenize -H "$json" -d '{"content":"Hello, world"}'
get /detokenize -H "$json" -d "{\"tokens\":$(sed -nE 's/.*"tokens":(\[[^]]*\]).*/\1/p' "$dir/.out")}"
check "and back" out_is '{"content":"Hello, world"}'
get /detokenize -H "$json" -d '{"tokens":[2.0,1e0]}'
check "whole numbers written as reals" status_is 200
get /v1/completions -H "$json" -d '{"prompt":[2.0,5],"max_tokens":1.0}'
check "in a prompt too" status_is 200
get /detokenize -H "$json" -d '{"tokens":[1,2,99999999]}'
is_error 400
get /health --head
check "HEAD" status_is 200

# A text without a break is the dearest: beside each of its bytes the tokenizer has 4 or more, an id
# has 4, and the reply 5.
if [[ $G == */release/* ]]; then
    memory() { awk -v name="$1:" '$1 == name { print 1024 * $2 }' "/proc/$server_pid/status"; }
    { printf '{"content":"' && head -c 4194304 /dev/zero | tr '\0' a && printf '"}'; } >"$dir/long"
    before=$(memory VmRSS)
    last="curl /tokenize, 4 MiB" out='' err=''
    curl -sS -m 60 -o "$dir/long.ids" -H "$json" --data-binary "@$dir/long" "$url/tokenize"
    check "a long text is answered whole" test "$(tail -c 18 "$dir/long.ids")" = '],"count":4194304}'
    took=$(($(memory VmHWM) - before))
    echo "4 MiB without a break took $took bytes"
    check "takes 18 bytes a byte at most" test $took -gt 0 -a $took -le $((18 * 4194304))
fi

# ---- what is not ---------------------------------------------------------------------------
get /
is_error 404
check "says what is there" out_has '/v1/chat/completions'
get /v1/chat/completions
is_error 405
check "says what is allowed" head_has 'allow: post, options'
get /health -X DELETE
is_error 405
get /v1/chat/completions -X OPTIONS
check "OPTIONS" status_is 204
check "no CORS unless asked for" head_lacks access-control
get / -X OPTIONS --request-target '*'
check "OPTIONS of the server" status_is 204
check "says what it takes" head_has 'allow: get, head, post, options'
get / --request-target '*'
is_error 404
for path in /etc/passwd /../../etc/passwd /v1/models/..%2f..%2fetc%2fpasswd //etc/passwd /.git/config; do
    get "$path" --path-as-is
    is_error 404
done

# ---- bodies --------------------------------------------------------------------------------
bad() { # status, body, curl options...
    get /v1/chat/completions -H "$json" -d "$2" "${@:3}"
    is_error "$1"
}
bad 400 ''
bad 400 '{'
bad 400 '[]'
bad 400 'null'
bad 400 '{"messages":[{"role":"user","content":"a"}],"messages":[]}'
bad 400 '{"messages":[{"role":"user","content":"a"}]} trailing'
bad 400 $'{"messages":[{"role":"user","content":"\xff\xfe"}]}'
bad 400 '{"messages":[{"role":"user","content":"a"}],"seed":9223372036854775808}'
check "names what it cannot take" out_has 'cannot be taken: too big integer near'
bad 400 '{"messages":[{"role":"user\u0000x","content":"a"}]}'
bad 400 '{"messages":[{"role":"user","content":[{"type":"text","text":"a","zzz":1}]}]}'
check "names the part" out_has 'messages[0].content[0].zzz'
get /tokenize -H "$json" -d '{"content":"a\ud83d b\ude00\\ud83d\ud83d\ude00"}'
get /detokenize -H "$json" -d "$(sed -E 's/,"count".*/}/' "$dir/.out")"
check "halves of characters" same "$(sed 's/\xef\xbf\xbd/?/g; s/\xf0\x9f\x98\x80/:)/' "$dir/.out")" '{"content":"a? b?\\ud83d:)"}'
get /v1/completions -H "$json" -d '{"prompt":"<start_of_turn>user\nHi<end_of_turn>","echo":true,"max_tokens":0}'
check "echo is the prompt as it was sent" out_has '"text":"<start_of_turn>user\nHi<end_of_turn>"'
# 493 is a byte of no character, which the text has as U+FFFD; 358 and 359 are the bytes of x and y.
get /v1/completions -H "$json" -d '{"prompt":"hi","seed":3,"temperature":2,"top_p":1,"top_k":0,"max_tokens":40,"logprobs":0,
    "logit_bias":{"493":100,"358":100,"359":100},"stop":["xxy"]}'
check "what a stop took back has no log-probability" out_has '"tokens":["bytes:\\xff"]'
# 282 is the byte of a comma: it is spelled like the token that texts have there.
get /tokenize -H "$json" -d '{"content":"Once"}'
once=$(sed -nE 's/.*"tokens":\[([^]]*)\].*/\1/p' "$dir/.out")
get /v1/completions -H "$json" -d "{\"prompt\":[2,$once,282],\"echo\":true,\"logprobs\":20,\"max_tokens\":0}"
byte=$(sed -nE 's/.*"token_logprobs":\[[^]]*,([^],]*)\].*/\1/p' "$dir/.out")
comma=$(sed -nE 's/.*[{,]",":(-[^,}]*).*/\1/p' "$dir/.out")
check "of two tokens that are spelled alike the likelier is shown" awk -v b="$byte" -v c="$comma" 'BEGIN { exit !(c > b + 1) }'
for prompt in '[]' '["a",1]' '[[]]'; do
    get /v1/completions -H "$json" -d "{\"prompt\":$prompt}"
    is_error 400
    check "names the field" out_has '"param":"prompt'
done
ids=$(printf ',5%.0s' {1..512})
get /v1/completions -H "$json" -d "{\"prompt\":[${ids#,}],\"max_tokens\":0}"
check "a prompt that fills the context, and no answer" status_is 200
get /v1/completions -H "$json" -d "{\"prompt\":[${ids#,}],\"max_tokens\":1}"
is_error 400
bad 400 '{"messages":[{"role":"user","content":"a"}],"tools":[1]}'
check "says what passes" out_has 'expected null or []'
bad 400 '{"messages":{"role":"user"}}'
bad 400 '{"messages":[{"role":"user","content":5}]}'
bad 400 '{"messages":[{"role":"user"}]}'
bad 400 '{"messages":[{"role":"assistant","content":"a"}]}'
bad 400 "$(printf '[%.0s' {1..3000})"
get /v1/chat/completions -d "$hello"
is_error 415
get /v1/chat/completions -d "$hello" -H 'Content-Type: text/plain'
is_error 415
get /v1/chat/completions -d "$hello" -H 'Content-Type:'
is_error 415
get /v1/chat/completions -d "$hello" -H "$json" -H 'Content-Encoding: gzip'
is_error 415
check "says why" out_has 'Content-Encoding is gzip'
for header in 'Host: evil.example' 'Host: localhost.evil.example:80' 'Origin: http://evil.example' 'Origin: null'; do
    get /health -H "$header"
    is_error 403
done
for header in 'Host: LOCALHOST' 'Host: [::1]:8006' 'Host:' 'Origin: http://localhost:3000'; do
    get /health -H "$header"
    check "$header is of this machine" status_is 200
done
get /v1/completions -H "$json" -d '{"prompt":"a","n":128,"max_tokens":1}'
check "more answers than the queue has places" status_is 200
{ printf '{"prompt":['; printf '[],%.0s' {1..300000}; printf '[]]}'; } >"$dir/many"
get /v1/completions --data-binary @"$dir/many" -H "$json" -H 'Expect:'
is_error 413
bad 400 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stop\":\"$(printf 'x%.0s' {1..1025})\"}"
check "names the field" out_has '"param":"stop"'
get /v1/chat/completions -d "${hello%?},\"max_tokens\":2}" -H 'Content-Type: application/json; charset=utf-8'
check "a type with parameters" status_is 200
get /v1/chat/completions -d "${hello%?},\"max_tokens\":2}" -H "$json" -H 'Transfer-Encoding: chunked'
check "a body in chunks" status_is 200
get /v1/chat/completions -d "${hello%?},\"max_tokens\":2}" -H "$json" --http1.0
check "HTTP/1.0" status_is 200
get /v1/chat/completions -d "$hello" -H "$json" -H 'Transfer-Encoding: gzip'
is_error 501
get /v1/chat/completions -d "$hello" -H "$json" -H 'Content-Length: 5' -H 'Content-Length: 88'
is_error 400
get /v1/chat/completions -d "$hello" -H "$json" -H 'Content-Length: 88' -H 'Transfer-Encoding: chunked'
is_error 400
get /v1/chat/completions -d "$hello" -H "$json" -H 'Transfer-Encoding: chunked' -H 'Transfer-Encoding: identity'
is_error 400
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n' >&3
out=$(cat <&3) last="two hosts"
exec 3>&-
check "two hosts are refused" out_has '400 Bad Request'
get /health --request-target http://elsewhere/health
check "a target with a host" out_has '"status":"ok"'
head -c 17000000 /dev/zero | tr '\0' ' ' >"$dir/big"
get /v1/chat/completions --data-binary @"$dir/big" -H "$json" -H 'Expect:'
check "a body too long: 413" status_is 413
get /v1/chat/completions --data-binary @"$dir/big" -H "$json" -H 'Transfer-Encoding: chunked' -H 'Expect:'
check "in chunks too" status_is 413
get /health -H "X-Long: $(head -c 60000 /dev/zero | tr '\0' x)"
check "headers too long: 431" status_is 431

# ---- the log -------------------------------------------------------------------------------
get /v1/chat/completions -H "$json" -d "${hello%?},\"max_tokens\":2,\"ignore_eos\":true,\"user\":\"me\",\"safety_identifier\":\"it\",\"metadata\":{\"job\":\"7\"}}"
line=$(grep '"user":"me"' "$dir/serve.err")
last=log out=$line
check "one line for it" same "$(grep -c '"user":"me"' "$dir/serve.err")" 1
check "with the counts" out_has '"completion_tokens":2'
check "and both names of who asks" out_has '"user":"me","safety_identifier":"it"'
check "and the metadata" out_has '"metadata":{"job":"7"}'
check "and no text of anybody's" same "$(grep -c Hello "$dir/serve.err")" 0

# ---- gemmule top ---------------------------------------------------------------------------
works "$G" top --port "$port" --once --interval 0.1
check "top shows who runs" out_matches 'running +\[\.+\] +0\.0 %  0 of 8'
check "and the model" out_has ' on cpu'
check "and names pages" out_matches 'KV local .* of [0-9]+ pages'
check "and no escapes where there is no terminal" eval '[[ $out != *$'"'\\033'"'* ]]'
refused 1 'no server answers' "$G" top --port 1 --once
if command -v script >/dev/null; then
    try timeout 20 script -qec "'$G' top --port $port --interval 3600" /dev/null < <(sleep 1; printf q; sleep 3)
    check "q ends it" rc_is 0
    try timeout 20 script -qec "stty cols 40 rows 10; '$G' top --port $port --interval 0.2" /dev/null < <(sleep 1; printf q; sleep 3)
    picture=$(sed $'s/.*\e\\[H//; s/\e\\[[?0-9]*[a-zA-Z]//g; s/\r//g' <<<"${out##*$'\e[H'}")
    check "a small window is not scrolled" same "$(wc -l <<<"$picture")" 10
    check "and no line is wider" same "$(awk 'length > 40' <<<"$picture")" ''
else
    echo "skip: script(1) is not here, so top was not tried at a terminal"
fi

# ---- signals -------------------------------------------------------------------------------
long="${hello%?},\"max_tokens\":400,\"ignore_eos\":true,\"stream\":true}"
curl -sN "$url/v1/chat/completions" -H "$json" -d "$long" >"$dir/stream" &
client=$!
wait_for grep -q content "$dir/stream"
stop_server
wait $client
check "SIGTERM lets what runs finish" rc_is 0
check "to its last byte" same "$(tail -n 2 "$dir/stream")" 'data: [DONE]'
check "the port is closed" eval '! curl -s "$url/health" >/dev/null'

# ---- keys ----------------------------------------------------------------------------------
printf '# keys\nfirst-key\n\n  second-key  \n' >"$dir/keys"
serve --api-key option-key --api-key-file "$dir/keys"
get /health
check "health needs no key" status_is 200
refused 1 'asks for a key' "$G" top --port "$port" --once
works "$G" top --port "$port" --once --interval 0.1 --api-key first-key
works "$G" top --port "$port" --once --interval 0.1 --api-key-file "$dir/keys"
refused 1 'does not know this key' "$G" top --port "$port" --once --api-key first
refused 1 'it has no key' "$G" top --port "$port" --once --api-key-file /dev/null
for path in /v1/models /metrics /props; do
    get $path
    is_error 401
done
check "says how" head_has 'www-authenticate: bearer'
get /v1/models -H 'Authorization: Bearer first'
is_error 401
check "says that it came" out_has 'this key is not known'
get /v1/models -H 'Authorization: Basic first-key'
is_error 401
check "says that none came" out_has 'a key is needed'
for key in option-key first-key second-key; do
    get /v1/models -H "Authorization: Bearer $key"
    check "$key lets in" status_is 200
done
echo third-key >"$dir/keys"
kill -HUP "$server_pid"
third() { get /v1/models -H 'Authorization: Bearer third-key'; status_is 200; }
check "SIGHUP reads the keys again" wait_for third
get /v1/models -H 'Authorization: Bearer first-key'
is_error 401
: >"$dir/keys"
kill -HUP "$server_pid"
check "a file without keys is refused" wait_for grep -q 'the keys stay as they were' "$dir/serve.err"
get /v1/models -H 'Authorization: Bearer third-key'
check "and those before go on" status_is 200
rm "$dir/keys"
mkfifo "$dir/keys"
kill -HUP "$server_pid"
stay_twice() { [ "$(grep -c 'the keys stay as they were' "$dir/serve.err")" = 2 ]; }
check "a pipe that nobody writes is no file with keys" wait_for stay_twice
stop_server
check "and does not keep it from ending" rc_is 0

# ---- CORS, TLS -----------------------------------------------------------------------------
serve --cors https://chat.example --model-name $'bad\xff\e[31mname'
get /health
check "a name of any bytes" out_has '"model":"bad??[31mname"'
check "is said safely" eval '! grep -q $'"'\e'"' "$dir/serve.out"'
get /v1/chat/completions -X OPTIONS -H 'Origin: https://chat.example' -H 'Access-Control-Request-Headers: authorization, x-stainless-os'
check "a preflight" status_is 204
check "of the origin" head_has 'access-control-allow-origin: https://chat.example'
check "with its headers" head_has 'access-control-allow-headers: authorization, x-stainless-os'
get /v1/models -H 'Origin: https://evil.example'
is_error 403
check "no other origin" head_lacks access-control-allow-origin
check "says which" out_has 'or of https://chat.example'
kill -HUP "$server_pid"
check "SIGHUP without a file says so" wait_for grep -q 'no --api-key-file that could be read again' "$dir/serve.err"
check "no warning of a loopback address" eval '! grep -q "may ask" "$dir/serve.err"'
stop_server
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
serve --tls-cert "$dir/cert.pem" --tls-key "$dir/key.pem"
url=https://127.0.0.1:$port
get /v1/chat/completions -k -d "${hello%?},\"max_tokens\":2,\"stream\":true}" -H "$json"
check "HTTPS" status_is 200
check "streams" out_has 'data: [DONE]'
refused 1 'does not speak plain HTTP, and top no other' "$G" top --port "$port" --once
stop_server
for origin in '' chat.example 'https://a.example, https://b.example' https://a.example/ ://a http://a.example:80; do
    refused 1 'expected * or one as browsers send it' "$G" serve -m "$MODEL" --port 0 --cors "$origin"
done
refused 2 'both a certificate and its key: --tls-key' "$G" serve -m "$MODEL" --port 0 --tls-cert "$dir/cert.pem"
refused 2 '--api-key is empty' "$G" serve -m "$MODEL" --port 0 --api-key ''
refused 2 '--api-key begins or ends with a blank' "$G" serve -m "$MODEL" --port 0 --api-key 'key '
refused 2 '--model-name is empty' "$G" serve -m "$MODEL" --port 0 --model-name ''
refused 1 "$dir/none" "$G" serve -m "$MODEL" --port 0 --api-key-file "$dir/none"
: >"$dir/file"
refused 1 "$dir/file: this is a file, expected a folder" "$G" serve -m "$MODEL" --port 0 --cache-dir "$dir/file"
refused 1 "$dir/no/such: the cache folder cannot be made" "$G" serve -m "$MODEL" --port 0 --cache-dir "$dir/no/such"

serve --host 0.0.0.0
check "warns where everybody may ask" grep -q 'whoever reaches 0.0.0.0 may ask' "$dir/serve.err"
stop_server INT
check "Ctrl-C ends it with success" rc_is 0
works "$G" serve --help
check "and the help says so" out_has 'Exit status: 0 ended by a signal, 1'

# ---- somebody who does not read ------------------------------------------------------------
serve --parallel 1 --ctx 2048
stalled='{"prompt":"Tell me","max_tokens":2000,"ignore_eos":true,"logprobs":20,"stream":true}'
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n%s' "$json" ${#stalled} "$stalled" >&3
parked() { [ "$(metric requests_parked)" = 1 ]; }
check "is parked" wait_for parked
get /v1/chat/completions -d "${hello%?},\"max_tokens\":2}" -H "$json"
check "and gives the only slot to who waits" status_is 200
check "until it is read again" parked
check "which ends its answer" eval '[[ $(timeout 60 sed "/DONE/q" <&3) == *"data: [DONE]"* ]]'
exec 3>&-
stop_server

# ---- the queue, time, keep-alive -----------------------------------------------------------
serve --parallel 1 --queue 1 --timeout 2 --ctx 2048
slow="${hello%?},\"max_tokens\":100000,\"ignore_eos\":true,\"stream\":true}"
for i in 1 2; do
    curl -sN --limit-rate 2000 "$url/v1/chat/completions" -H "$json" -d "$slow" >"$dir/slow$i" &
done
busy() { [ "$(metric requests_running)/$(metric requests_queued)" = 1/1 ]; }
check "one runs and one waits" wait_for busy
get /v1/chat/completions -H "$json" -d "$hello"
is_error 429
check "says how many there are" out_has '"message":"the queue is full: at most 1 at once and 1 waiting"'
check "says when to come again" head_has 'retry-after: 1'
get /health
check "health is answered meanwhile" out_has '"queued":1'
idle() { [ "$(metric requests_running)/$(metric requests_queued)" = 0/0 ]; }
check "the time of both ends" wait_for idle
whole="${hello%?},\"n\":64,\"max_tokens\":100000,\"ignore_eos\":true,\"user\":\"late\"}"
get /v1/chat/completions -H "$json" -d "$whole"
is_error 504
check "nobody is to ask again" head_has 'x-should-retry: false'
check "what was done of it is in the log" eval '! grep "\"late\"" "$dir/serve.err" | grep -q "\"completion_tokens\":0"'
check "and is counted" eval '[ "$(metric timeouts_total)" -ge 1 ]'
stop_server
check "ends with success" rc_is 0

# ---- a model that is cut under it ----------------------------------------------------------
cp "$MODEL" "$dir/cut.gguf"
MODEL=$dir/cut.gguf serve --backend cpu
check "says what memory it takes" grep -qE ', weights [0-9.]+ [MG]B, KV cache [0-9.]+ [MG]B$' "$dir/serve.out"
: >"$dir/cut.gguf"
get /v1/chat/completions -H "$json" -d "$hello"
wait "$server_pid"
rc=$? server_pid= err=$(tail -n 1 "$dir/serve.err")
check "ends" rc_is 1
check "and says why" err_has 'the model file was cut short'

refused 2 'there is a word, word; expected options only' "$G" serve -m "$MODEL" word
refused 1 'cannot be listened on' "$G" serve -m "$MODEL" --port 1 --host 192.0.2.1
finish
