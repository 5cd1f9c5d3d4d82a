#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule chat: a conversation from a pipe and at a terminal, its commands, its history, and Ctrl-C,
# which stops the answer at a terminal and the program elsewhere.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash

chat=(chat -m "$tiny" --max-tokens 8 --seed 1)
no_end=(--logit-bias 1=-1000 --logit-bias 106=-1000) # the tokens that end an answer

# A conversation from standard input.
say() { # lines, options of chat...
    printf '%b' "$1" >"$dir/lines"
    try bash -c '"$@" <"$0"' "$dir/lines" "$G" "${chat[@]}" "${@:2}"
    untimed
}
# Leaves out what no two answers have in common.
untimed() {
    out=$(printf '%s.' "$out" | sed -E 's/"(seconds|tok_s|cached_tokens)":[^,}]+/"\1":0/g')
    out=${out%.}
}

# What goes where.
say 'hello\n'
first=$out
check "an answer" rc_is 0
check "with a newline behind it" eval '[[ ${#out} -gt 1 && $out == *"$newline" ]]'
check "the note is all that is said" err_is "$note"
works "$G" run -m "$tiny" --max-tokens 8 --seed 1 hello
check "the first message is answered as run answers it" out_is "$first"
say 'hello'
check "the last line needs no newline" out_is "$first"
say '\n  \t\nhello\n\n'
check "empty lines are no messages" out_is "$first"
say ''
check "no message, no answer" out_is ''
check "and no failure" rc_is 0
say 'hello\nhello\n'
check "the second answer comes after the first" eval '[[ $out == "$first"?* ]]'
check "and is another, since the conversation goes on" eval '[ "$out" != "$first$first" ]'
check "the note is said once" err_is "$note"
say 'hello\nhello\n' --json
check "an object for each answer" same "$(grep -c '^{"model":.*,"seed":1,.*}$' "$dir/.out")" 2
n=($(grep -o '"prompt_tokens":[0-9]*' "$dir/.out" | cut -d: -f2))
check "the second prompt has the first and its answer" test "${n[1]}" -gt $((2 * n[0]))
say 'one\\\ntwo\n' --json
check "a backslash joins two lines to one message" same "$(wc -l <"$dir/.out")" 1
try "$G" run -m "$tiny" --max-tokens 8 --seed 1 --json "one${newline}two"
untimed
joined=$out
say 'one\\\ntwo' --json
check "with a newline between them" out_is "$joined"
say 'hello\\' --json
check "nothing comes behind the end" same "$(wc -l <"$dir/.out")" 1
say 'hello\n' --system 'be kind' --json
kind=$out
try "$G" run -m "$tiny" --max-tokens 8 --seed 1 --json --system 'be kind' hello
untimed
check "system instructions are those of run" out_is "$kind"
say 'hello\n' -v
check "-v leaves the answer as it is" out_is "$first"
for fact in 'backend +[a-z]' 'seed +1' 'decode tok/s +[0-9.]+' 'logits hash +[0-9a-f]{16}'; do
    check "-v says $fact" eval '[[ $err =~ "$newline"'"${fact// /\\ }"' ]]'
done
hash=$(grep 'logits hash' "$dir/.err")
try "$G" run -m "$tiny" --max-tokens 8 --seed 1 -v hello
check "the hash is that of run" err_has "$hash"
say 'hello\n/reset\nhello\n' -v
check "and does not depend on what came before" same "$(grep -cF "$hash" "$dir/.err")" 2

# Commands.
say '/help\n'
check "help is not an answer" out_is ''
for command in help reset system stats quit; do
    check "help has /$command" eval '[[ $err =~ (^|"$newline")/$command\ +[a-zA-Z] ]]'
done
say 'hello\n/reset\nhello\n'
check "a conversation begins anew" out_is "$first$first"
check "and that is said" err_has 'the conversation begins anew'
say 'hello\n/quit\nhello\n'
check "/quit ends" out_is "$first"
check "with success" rc_is 0
for other in /exit /bye; do
    say "hello\n$other\nhello\n"
    check "$other ends too" out_is "$first"
done
say '/?\n'
check "/? is /help" eval '[[ $err == /help* && $err != *bye* ]]'
say '/clear\n/rest\n'
check "another program's name" err_has 'there is no command /clear; did you mean /reset? (/help'
check "a slip of the finger" err_has 'there is no command /rest; did you mean /reset? (/help'
say '/system\n/system be kind\n/system\nhello\n/system -\nhello\n/system\n' --json
check "no system message at first" err_has 'there is no system message; /system TEXT sets one'
check "it is shown" err_has "system          be kind$newline"
check "it is that of --system" eval '[[ $out == "$kind"* ]]'
check "and goes" eval '[[ $out != "$kind$kind" ]]'
check "which shows" same "$(grep -c 'there is no system message' "$dir/.err")" 2
say 'hello\n/reset\nhello\n' --system 'be kind' --json
check "/reset leaves the system message" out_is "$kind$kind"
say '/stats\nhello\n/stats\n' "${no_end[@]}"
check "nothing yet" err_has "context         0 of 2048 tokens"
check "eight tokens" err_has "answer tokens   8 (last: 8)"
check "in the context" eval '[[ $err =~ "context         "[1-9][0-9]*" of 2048 tokens" ]]'
check "their speed" eval '[[ $err =~ "prefill tok/s   "[0-9.]+.*"decode tok/s    "[0-9.]+ ]]'
check "no hash" err_has 'logits hash     only with gemmule chat -v'
say 'hello\n/stats\n' -v
check "a hash" same "$(grep -cF "$hash" "$dir/.err")" 2
say '/frobnicate now\nhello\n'
check "an unknown command is a sentence" err_has \
    'gemmule: there is no command /frobnicate (/help lists them; to send it as a message: //frobnicate)'
check "the rest is answered" out_is "$first"
check "a refused line is a failure in the end" rc_is 1
say '/reset now\n'
check "what takes no text says so" err_has '/reset takes nothing behind it'
say '/\n'
check "a slash is no command" err_has 'there is no command / '
say '//hello\n' --json
slashes=$out
try "$G" run -m "$tiny" --max-tokens 8 --seed 1 --json /hello
untimed
check "two slashes send one" out_is "$slashes"
say 'hello\n/reset\nhello\n' "${no_end[@]}" --seed 1 --temp 2
check "a given seed is kept" same "$(sed -n 1p "$dir/.out")" "$(sed -n 2p "$dir/.out")"

# The context.
printf 'hello\nhello\n/reset\nhello\n' >"$dir/lines"
try bash -c '"$@" <"$0"' "$dir/lines" "$G" chat -m "$tiny" --seed 1 --ctx 40 "${no_end[@]}"
check "an answer that is cut says so" eval \
    '[[ $err =~ "the answer is cut: "[0-9]+" tokens of prompt and "[0-9]+" of answer fill the context of 40 (/reset" ]]'
check "a message that does not fit says so" eval \
    '[[ $err =~ "the conversation with this message has "[0-9]+" tokens, and the context has room for 39 with one to answer" ]]'
check "which is a failure" rc_is 1
check "after /reset there is room" same "$(grep -c 'the answer is cut' "$dir/.err")" 2
say 'hello\n' "${no_end[@]}"
check "a limit that was asked for is not remarked on" err_is "$note"

# Refusals.
refused 2 'chat: there is a word, hello; messages are typed or piped' "$G" chat -m "$tiny" hello
refused 2 '--stop is empty' "$G" chat -m "$tiny" --stop ''
refused 2 '--backend is abacus' "$G" chat -m "$tiny" --backend abacus
refused 2 'unknown option --raw' "$G" chat -m "$tiny" --raw
refused 1 'No such file' "$G" chat -m "$dir/nothing.gguf"
try bash -c '"$@" <"$0"' "$dir" "$G" "${chat[@]}"
check "an input that cannot be read" err_has 'gemmule: standard input: '
check "is a failure" rc_is 1

# Ctrl-C without a terminal ends the program: during an answer, and while a line is awaited.
mkfifo "$dir/fifo"
exec 9<>"$dir/fifo"
start() { # options of chat...
    last="chat $* and Ctrl-C"
    "$G" chat -m "$tiny" --seed 1 "$@" <"$dir/fifo" >"$dir/.out" 2>"$dir/.err" 9>&- &
    pid=$!
}
await() { # command that will succeed...
    for _ in $(seq 400); do
        ! "$@" || return 0
        sleep 0.05
    done
}
start --backend ref "${no_end[@]}"
printf 'hello\nhello\n' >&9
await test -s "$dir/.out"
kill -INT $pid
wait $pid
rc=$? && kept
check "Ctrl-C exits with 130" rc_is 130
check "the answer ends with a newline" eval '[ "${out: -1}" = "$newline" ]'
exec 9>&- 9<>"$dir/fifo"
start --max-tokens 3
printf 'hello\n' >&9
await test -s "$dir/.out"
sleep 0.3
kill -INT $pid
wait $pid
rc=$? && kept
check "Ctrl-C exits with 130 between answers too" rc_is 130
exec 9>&-

# At a terminal.
if ! command -v script >/dev/null; then
    echo "skip: script(1) is not here, so nothing was tried at a terminal"
    finish
    exit
fi
state=$dir/state

# Starts a chat in a terminal of its own; fd 9 is its keyboard, $dir/.out its screen.
open() { # options of chat...
    last="chat $* at a terminal"
    : >"$dir/.out"
    exec 9<>"$dir/fifo"
    env -u HOME XDG_STATE_HOME="$state" TERM=xterm LC_ALL=C \
        script -qefc "'$G' chat -m '$tiny' --seed 1 $*" /dev/null \
        <"$dir/fifo" >"$dir/.out" 2>"$dir/.err" 9>&- &
    pid=$!
    n_prompts=0
    prompt
}
# Waits for one prompt more than before. The terminal is asked to mark pastes at each.
prompts() { [ "$(grep -aoF '[?2004h' "$dir/.out" | wc -l)" -ge "$1" ]; }
prompt() {
    n_prompts=$((n_prompts + 1))
    await prompts $n_prompts
}
keys() { printf '%b' "$1" >&9; }
line() { keys "$1\r" && prompt; }
close() {
    wait $pid
    rc=$?
    exec 9>&-
    kept
    out=${out//$'\r'/}
}

open --max-tokens 3
line hello
line 'h\xc3\xb6rt ihr'
keys '\003' && prompt
keys 'not this\003' && prompt
line 'one\\'
line two
line '\033[200~three\rfour\033[201~ five'
line '/stats'
keys '\004'
close
check "Ctrl-D ends with success" rc_is 0
check "there is a prompt" out_has '> '
check "how to begin" out_has '/help           shows what else may be typed; Ctrl-D ends'
check "the answers to four messages" out_has 'answers         4'
check "Ctrl-C at an empty prompt says how to leave" out_has 'note: Ctrl-D or /quit ends the chat'
check "but not where it took something back" same "$(grep -ac 'or /quit ends the chat' "$dir/.out")" 1
file=$state/gemmule/history
check "the history is the user's only" same "$(stat -c %a "$file") $(stat -c %a "$state/gemmule")" '600 700'
check "it has messages and commands" same "$(tail -n +2 "$file" | tr '\n' ' ')" \
    $'hello h\xc3\xb6rt\\040ihr one\\012two three\\012four\\040five /stats '

# Another time, with the arrow key; and Ctrl-C in an answer.
open --backend ref "${no_end[*]}"
keys '\033[A\033[A\033[A\033[A\r'
answered() { grep -aq 'note: this model' "$dir/.out" && [ "$(sed '1,/note: this model/d' "$dir/.out" | wc -c)" -gt 0 ]; }
await answered
keys '\003' && prompt
line '/stats'
keys '/quit\r'
close
check "Ctrl-C did not end the program" rc_is 0
check "the arrow brought back the message" out_has $'h\xc3\xb6rt ihr'
check "the answer is kept as far as it came" out_has 'answers         1'

# What another chat wrote meanwhile stays.
open
echo 'from\040elsewhere' >>"$file"
keys '/help\r' && prompt
keys '\004'
close
check "chats side by side keep each other's lines" same "$(tail -n 2 "$file" | tr '\n' ' ')" \
    'from\040elsewhere /help '

# A history that cannot be kept.
cp "$file" "$dir/kept"
open --no-history
keys '/help\r' && prompt
keys '\004'
close
check "--no-history leaves the file alone" cmp "$file" "$dir/kept"
echo 'something else' >"$file"
open
keys '/help\r' && prompt
keys '\004'
close
check "a file that is no history" out_has "note: $file: this is no history file, so what you type is not kept"
check "is left alone" same "$(cat "$file")" 'something else'
check "and is no failure" rc_is 0
state=$tiny
open
keys '/help\r' && prompt
keys '/stats\r' && prompt
keys '\004'
close
check "a folder that cannot be made" out_has "note: $tiny/gemmule/history: Not a directory, so"
check "is said once" same "$(grep -ac 'is not kept' "$dir/.out")" 1
check "and is no failure" rc_is 0
finish
