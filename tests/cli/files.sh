#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule inspect and gemmule synth, and files that are no models.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash

# What is in a file.
works "$G" inspect "$tiny"
check "the file" out_has "file     $tiny"
check "its format" out_has 'format   GGUF v3'
check "its keys" out_matches "gemma3\.block_count +u32 +7$newline"
check "its types" out_matches "$newline  q8_0 +[0-9]+ tensors +[0-9.]+ MB"
check "layers share a line" out_matches 'blk\.\*\.attn_q\.weight +q8_0 +\[256, 256\] +x7 '
check "memory" out_matches "Memory needed:$newline +context +weights +KV cache +in all$newline +2048 +5\.0 MB"
check "that it means nothing" out_has "note     this model's weights are random"
check "nothing is said elsewhere" err_is ''
text=$out
works "$G" inspect -m "$tiny"
check "-m is another way to name it" out_is "$text"
refused 2 'there are a FILE and -m, expected one model' "$G" inspect -m "$tiny" "$tiny"
works "$G" inspect "$tiny" -v
check "-v shows each layer" out_matches 'blk\.6\.attn_q\.weight +q8_0'
check "and no star" eval '[[ $out != *"blk.*"* ]]'
works "$G" inspect --json "$tiny"
check "JSON on one line" same "$(wc -l <"$dir/.out")" 1
check "begins with the file" out_matches '^\{"file":"[^"]*","format":"GGUF v3","runs":true,'
check "keys" out_has '{"name":"gemma3.block_count","type":"u32","n":1,"value":"7"}'
check "tensors" out_has '{"name":"blk.6.attn_q.weight","type":"q8_0","shape":[256,256],"bytes":69632}'
check "memory" out_matches '"memory":\{"weights":[0-9]+,"kv":\[\{"ctx":2048,"bytes":[0-9]+\}\]\}'
works "$G" inspect --plan "$tiny"
check "the plan" out_matches '%1 \[n, 256\] = input_rows token_embd'
check "and only it" eval '[[ $out != *Keys* ]]'
works "$G" inspect --plan --json "$tiny"
check "the plan beside the rest" out_matches '"keys":.*"plan":"'
works "$G" inspect tests/golden/multimodal
check "a Hugging Face folder" out_has 'format   Hugging Face safetensors'
check "images are left out" out_matches 'skipped  [1-9][0-9]* tensors for images'
last="inspect | head"
{ "$G" inspect -v "$tiny" 2>"$dir/.err"; echo $? >"$dir/.rc"; } | head -n 1 >"$dir/.out"
rc=$(cat "$dir/.rc") && kept
check "a reader that leaves is no failure" rc_is 0
check "and nothing to speak of" err_is ''

# Another architecture can be looked at, and cannot be run.
LC_ALL=C sed 's/gemma3/llamaX/g' "$tiny" >"$dir/other.gguf"
works "$G" inspect "$dir/other.gguf"
check "it says why" out_matches "model    cannot be run: $dir/other.gguf: .*llamaX"
check "and shows it" out_matches 'blk\.\*\.attn_q\.weight'
works "$G" inspect --json "$dir/other.gguf"
check "in JSON too" out_matches '"runs":false,.*"why":"[^"]*llamaX'
refused 1 llamaX "$G" inspect --plan "$dir/other.gguf"
refused 1 llamaX "$G" run -m "$dir/other.gguf" hi

# Files that are no models: one sentence that names the file, and exit code 1.
size=$(stat -c %s "$tiny")
head -c 0 "$tiny" >"$dir/empty.gguf"
head -c 4 "$tiny" >"$dir/four.gguf"
head -c 1000 "$tiny" >"$dir/short.gguf"
head -c $((size - 1)) "$tiny" >"$dir/cut.gguf"
{ head -c 8 "$tiny"; printf '\377\377\377\377\377\377\377\177'; tail -c +17 "$tiny"; } >"$dir/absurd.gguf"
echo 'no model' >"$dir/text.gguf"
mkdir "$dir/folder"
for file in empty.gguf four.gguf short.gguf cut.gguf absurd.gguf text.gguf folder nothing.gguf; do
    for command in 'run hi -m' 'tokenize hi -m' 'logits hi -m' inspect; do
        # shellcheck disable=SC2086 # the command is words
        refused 1 "$dir/$file" "$G" $command "$dir/$file"
    done
done

refused 1 ': is the file cut short?' "$G" inspect "$dir/cut.gguf"

# Making one.
works "$G" synth "$dir/again.gguf"
check "says what it did, not on standard output" out_is ''
check "and what to do next" err_has "wrote $dir/again.gguf, 5.0 MB; to see what it says: gemmule run -m"
check "the same options give the same bytes" cmp "$tiny" "$dir/again.gguf"
works "$G" synth "$dir/seed.gguf" --seed 1
check "another seed gives others" eval '! cmp -s "$tiny" "$dir/seed.gguf"'
works "$G" synth --size tiny --type q4_0 --head-type f16 "$dir/typed.gguf"
works "$G" inspect "$dir/typed.gguf"
check "the layers' type" out_matches 'blk\.\*\.attn_q\.weight +q4_0'
check "the head's type" out_matches 'token_embd\.weight +f16'
refused 1 "$tiny: is there already" "$G" synth "$tiny"
check "how to replace it" err_has '(--force)'
check "it is as it was" cmp "$tiny" "$dir/again.gguf"
works "$G" synth --force --seed 1 "$dir/again.gguf"
check "replaced" cmp "$dir/seed.gguf" "$dir/again.gguf"
refused 2 'expected one of: ' "$G" synth "$dir/x.gguf" --size 3b
refused 2 'expected one of: ' "$G" synth "$dir/x.gguf" --type q9
refused 2 'expected one of: ' "$G" synth "$dir/x.gguf" --head-type q9
refused 1 "$dir/nowhere/x.gguf" "$G" synth "$dir/nowhere/x.gguf"
mkfifo "$dir/pipe"
refused 1 'is not a regular file' "$G" synth "$dir/pipe" --force
check 'the pipe is still one' test -p "$dir/pipe"

# Weights that are not numbers: the first four bytes of the last tensor, an F32 norm, become a NaN.
"$G" synth "$dir/nan.gguf" --type f32 >/dev/null 2>&1
printf '\000\000\300\177' |
    dd of="$dir/nan.gguf" bs=1 seek=$(($(stat -c %s "$dir/nan.gguf") - 1024)) conv=notrunc 2>/dev/null
try "$G" run -m "$dir/nan.gguf" Hello --max-tokens 5
check 'a NaN is an error' rc_is 1
check 'a NaN is said' err_has 'are not numbers'
check "nothing is left behind" test ! -e "$dir/x.gguf"

# A signal in the middle of a large one leaves no file.
mkdir "$dir/large"
for sig in 1 2 15; do
    last="synth and signal $sig"
    "$G" synth "$dir/large/out.gguf" --size 27b --type q4_0 >"$dir/.out" 2>"$dir/.err" &
    pid=$!
    for _ in $(seq 200); do
        [ -z "$(ls -A "$dir/large")" ] || break
        sleep 0.05
    done
    kill -$sig $pid
    wait $pid
    rc=$? && kept
    check "exits with its number" rc_is $((128 + sig))
    check "no file is left" same "$(ls -A "$dir/large")" ''
done
finish
