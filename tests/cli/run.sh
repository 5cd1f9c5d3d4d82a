#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule run: the answer and nothing else on standard output, the same for the same seed, ended by
# stop strings, limits, Ctrl-C and closed pipes.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash

answer=(run -m "$tiny" --max-tokens 12)
no_end=(--logit-bias 1=-1000 --logit-bias 106=-1000) # the tokens that end an answer

# What goes where.
works "$G" "${answer[@]}" --seed 1 hello there
one=$out
check "ends with a newline" eval '[[ $out == *"$newline" ]]'
check "the note is all that is said" err_is "$note"
works "$G" "${answer[@]}" --seed 1 'hello there'
check "words are joined by blanks, the seed decides" out_is "$one"
works "$G" "${answer[@]}" --seed 2 hello there
check "another seed, another answer" eval '[ "$out" != "$one" ]'
try bash -c "printf 'hello there' | '$G' run -m '$tiny' --max-tokens 12 --seed 1"
check "the prompt may be piped" out_is "$one"
try bash -c "printf 'hello there' | '$G' run -m '$tiny' --max-tokens 12 --seed 1 -"
check "a dash is standard input" out_is "$one"
try bash -c "printf 'there' | '$G' run -m '$tiny' --max-tokens 12 --seed 1 hello -"
behind=$out
works "$G" "${answer[@]}" --seed 1 "hello$newline${newline}there"
check "a dash behind words adds standard input below an empty line" out_is "$behind"
try bash -c "printf 'there' >'$dir/text'; '$G' run -m '$tiny' --max-tokens 12 --seed 1 hello there <'$dir/text'"
check "without it words are all" out_is "$one"
check "which is said" err_has 'note: standard input is not read, since there are words; a - behind them adds it'
for model in nothing.gguf tests/golden/gqa4; do
    for command in run logits tokenize; do
        refused 2 "$command: $model: is this the model? It goes behind -m" "$G" $command $model hello
    done
done
works "$G" "${answer[@]}" nothing.gguf
works "$G" tokenize "what is in nothing.gguf"
try "$G" run --max-tokens 3 gemma3:4b hello
check "another program's name of a model is a note" err_has 'gemma3:4b is read as part of the prompt'
check "and no failure" rc_is 0
refused 1 "-m is empty, expected a model's path" "$G" run -m '' hello
works "$G" run --seed=1 hello "-m$tiny" there --max-tokens=12
check "options stand anywhere, with = or glued to a letter" out_is "$one"
works "$G" "${answer[@]}" --seed 1 -- hello there
check "-- ends the options" out_is "$one"
works "$G" "${answer[@]}" --seed 1 -- --json
check "after -- an option is a word" eval '[ "$out" != "$one" ] && [[ $out != {* ]]'
works "$G" "${answer[@]}" --seed 1 --system "be kind" hello there
check "system instructions matter" eval '[ "$out" != "$one" ]'

works "$G" "${answer[@]}" --seed 1 -v hello there
check "-v leaves the answer as it is" out_is "$one"
for fact in "model +$tiny" 'backend +[a-z]' 'seed +1' 'prompt tokens +[0-9]+' 'answer tokens +[0-9]+' \
    'prefill tok/s +[0-9.]+ \([0-9.]+ Gop/s, [0-9.]+% of the roof\)' \
    'decode tok/s +[0-9.]+ \([0-9.]+ GB/s, ([0-9.]+% of the roof|out of the cache)\)' 'logits hash +[0-9a-f]{16}'; do
    check "-v says $fact" eval '[[ $err =~ "$newline"'"${fact// /\\ }"' ]]'
done
hash=$(grep -o 'logits hash.*' "$dir/.err")
works "$G" "${answer[@]}" --seed 1 -v hello there
check "the same run, the same hash" err_has "$hash"
works "$G" "${answer[@]}" -v hello
seed=$(sed -n 's/^seed *//p' "$dir/.err") random=$out
works "$G" "${answer[@]}" --seed "$seed" hello
check "the random seed that -v shows gives the same answer" out_is "$random"

# JSON.
json='^\{"model":"[^"]*","text":".*","tokens":[0-9]+,"prompt_tokens":[0-9]+,"finish_reason":"(stop|length|cancel)","seed":[0-9]+,"cached_tokens":[0-9]+,"prefill":\{"seconds":[0-9.e-]+,"tok_s":[0-9.e+]+\},"decode":\{"seconds":[0-9.e-]+,"tok_s":([0-9.e+]+|null)\}\}'
works "$G" "${answer[@]}" --seed 1 --json hello there
check "one object on one line" out_matches "$json$newline\$"
check "one line" same "$(wc -l <"$dir/.out")" 1
check "the seed" out_has '"seed":1,'
works "$G" "${answer[@]}" --seed 9223372036854775807 --json hello
check "the largest seed" out_has '"seed":9223372036854775807,'

# How tokens are drawn. The tiny model has the letter a as a token of its own.
try "$G" tokenize -m "$tiny" --no-bos --json a
a=$(sed -E 's/.*"id":([0-9]+).*/\1/' <<<"$out")
works "$G" run -m "$tiny" --raw x --temp 0 --logit-bias "$a=1000" --max-tokens 5
check "a bias forces a token" out_is "aaaaa$newline"
works "$G" run -m "$tiny" --raw x --logit-bias "$a=1000" --max-tokens 5 --stop b --stop aaa --json
check "a stop string ends the answer before it" out_has '"text":"",'
check "and that is a stop" out_has '"finish_reason":"stop"'
works "$G" run -m "$tiny" --raw x --logit-bias "$a=1000" --max-tokens 5 --stop aaaaaa --json
check "what a stop string held back is given out in the end" out_has '"text":"aaaaa","tokens":5,'
check "and that is the length" out_has '"finish_reason":"length"'
greedy=(run -m "$tiny" --raw "Once upon" --temp 0 --max-tokens 16 "${no_end[@]}")
works "$G" "${greedy[@]}"
cold=$out
works "$G" "${greedy[@]}" --seed 5
check "without temperature the seed does not matter" out_is "$cold"
works "$G" "${greedy[@]}" --temp 1 --top-k 1
check "one candidate is the likeliest" out_is "$cold"
works "$G" "${greedy[@]}" --temp 1 --top-p 0
check "nor is there another in no share" out_is "$cold"
works "$G" "${greedy[@]}" --temp 1 --min-p 1
check "nor beside the likeliest" out_is "$cold"
stop=${cold:4:3}
works "$G" "${greedy[@]}" --stop "$stop"
check "an answer is cut before a stop string" out_is "${cold%%"$stop"*}$newline"
works "$G" "${greedy[@]}" --max-tokens 3 --json
check "the last of an option given twice counts" out_has '"tokens":3,'
works "$G" run -m "$tiny" --backend auto --ctx 64 --system s --temp 0.7 --top-k 20 --top-p 0.9 \
    --min-p 0.01 --repeat-penalty 1.1 --frequency-penalty 0.5 --presence-penalty -0.5 \
    --logit-bias 5=-3.5 --logit-bias 7=2 --seed 3 --max-tokens 8 --stop '###' --stop END --json -v hi
check "every option together" out_matches "$json"
works "$G" run -m "$tiny" --raw --no-bos --no-special '<start_of_turn>' --max-tokens 2 --json
check "a raw prompt of plain text only" eval '! grep -q "\"prompt_tokens\":1," "$dir/.out"'
works "$G" run -m "$tiny" --raw --no-bos '<start_of_turn>' --max-tokens 2 --json
check "a raw prompt of one control token" out_has '"prompt_tokens":1,'
works "$G" run -m "$tiny" --raw '' --max-tokens 2 --json
check "an empty raw prompt begins a text" out_has '"prompt_tokens":1,'
works "$G" run -m "$tiny" --ctx 32 --raw x "${no_end[@]}" --json
check "the context is the limit" out_matches '"prompt_tokens":2,"finish_reason":"length"'
works "$G" run -m "$tiny" --ctx 32 --raw x "${no_end[@]}"
check "an answer that is cut says so" err_is \
    "${note}gemmule: note: the answer is cut: 2 tokens of prompt and 30 of answer fill the context of 32 (--ctx sets the context)$newline"
works "$G" run -m "$tiny" --raw x "${no_end[@]}" --max-tokens 5
check "a limit that was asked for is not remarked on" err_is "$note"
works "$G" run -m tests/golden/gqa4 --raw x --max-tokens 3
check "a Hugging Face folder has no note" err_is ''

# Refusals that only the model can decide.
refused 1 "9000 positions, expected 2 to the model's 2048" "$G" run -m "$tiny" --ctx 9000 hi
refused 1 'the context has room for 7 with one to answer (--ctx sets the context)' \
    "$G" run -m "$tiny" --ctx 8 a long prompt is refused
refused 1 'logit bias for token 999999, expected 0 to 2047' "$G" run -m "$tiny" --logit-bias 999999=1 hi

# A closed pipe ends quietly; a full disk does not.
last="run | head"
for reader in 'head -c 1' 'head -n 1' true; do
    { "$G" run -m "$tiny" "${no_end[@]}" hi 2>"$dir/.err"; echo $? >"$dir/.rc"; } | $reader >"$dir/.out"
    rc=$(cat "$dir/.rc") && kept
    check "a reader that leaves is no failure" rc_is 0
    check "and nothing to speak of" err_is "$note"
done
if [ -w /dev/full ]; then
    last="run > /dev/full"
    "$G" run -m "$tiny" --max-tokens 3 hi >/dev/full 2>"$dir/.err"
    rc=$? && kept
    check "a full disk is a failure" rc_is 1
    check "with its reason" err_has "gemmule: standard output: No space left on device"
fi
last="run >&-"
"$G" run -m "$tiny" --max-tokens 3 hi >&- 2>"$dir/.err"
rc=$? && kept
check "no standard output is a failure" rc_is 1
check "with its reason" err_has "gemmule: standard output: "

# Ctrl-C, once the answer has begun, on a backend that is slow enough to be met in the middle.
interrupt() { # arguments of run...
    last="run $* and Ctrl-C"
    : >"$dir/.out" # what the last one said is not to be taken for this one's
    : >"$dir/.err"
    "$G" run -m "$tiny" --backend ref "${no_end[@]}" "$@" >"$dir/.out" 2>"$dir/.err" &
    local pid=$!
    for _ in $(seq 200); do
        [ ! -s "$dir/.out" ] && ! grep -q note "$dir/.err" || break
        sleep 0.05
    done
    kill -INT $pid
    wait $pid
    rc=$? && kept
}
interrupt hi
check "Ctrl-C exits with 130" rc_is 130
check "the answer ends with a newline" eval '[ "${out: -1}" = "$newline" ]'
check "nothing else is said" err_is "$note"
interrupt --json hi
check "Ctrl-C exits with 130" rc_is 130
check "what there is so far is given out" out_has '"finish_reason":"cancel"'

# Ctrl-C while the prompt is awaited.
mkfifo "$dir/fifo"
exec 9<>"$dir/fifo"
last="run < fifo and Ctrl-C"
"$G" run -m "$tiny" <"$dir/fifo" >"$dir/.out" 2>"$dir/.err" &
pid=$!
sleep 0.3
kill -INT $pid
wait $pid
rc=$? && kept
check "Ctrl-C ends at once" rc_is 130
check "and quietly" err_is ''
finish
