#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The model that comes with gemmule: used where none is named, and it does what its card says.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
mini=$(realpath models/gemmule-mini.gguf)

# Every command finds it, from any folder and through a link.
ln -s "$G" "$dir/link"
for start in "$G" "$dir/link"; do
    works env -C "$dir" "$start" run --json --max-tokens 5 Hello
    check "run" out_has "{\"model\":\"$mini\""
done
for words in 'tokenize Hello' 'logits Hello' inspect; do
    # shellcheck disable=SC2086 # the command is words
    works "$G" $words
    bundled=$out
    # shellcheck disable=SC2086
    if [ "$words" = inspect ]; then works "$G" inspect "$mini"; else works "$G" $words -m "$mini"; fi
    check "$words uses it" out_is "$bundled"
done
works "$G" bench --json -p 8 -n 2 -r 1
check "bench" out_has "\"$mini\""
check "it is not said to be random" eval '[[ $err != *random* ]]'
works "$G" run -m "$tiny" --json --max-tokens 5 Hello
check "-m comes first" out_has "{\"model\":\"$tiny\""

# What was asked for is in the story, which ends by itself; whatever the seed.
for seed in 1 2 3 4; do
    works "$G" run --json --seed $seed 'Tell me a story about a fox and a lantern'
    check "the fox and the lantern" out_matches '"text":"[^{]*fox[^{]*lantern'
    check "an end" out_has '"finish_reason":"stop"'
done
works "$G" run --temp 0 'What is 17 + 25?'
check "a sum" out_has 42
last="chat"
printf 'Hello!\nTell me a story about a hedgehog and a bicycle.\nThank you. What is 12 + 30?\n' |
    "$G" chat --temp 0 >"$dir/.out" 2>"$dir/.err"
rc=$? && kept
check "a chat of three turns" rc_is 0
check "the story" out_matches 'hedgehog.*bicycle'
check "the sum after it" out_matches "42[^$newline]*$newline\$"
works "$G" run --raw --temp 0 'Once upon a time, there lived a little fox'
check "goes on with a text" test "${#out}" -gt 200
works "$G" run -m models/gemmule-draft.gguf --seed 1 --json 'Tell me a story about a fox and a lantern.'
check "the draft tells stories too" out_matches '"text":"[^{]*fox[^{]*lantern'
finish
