#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule compare, and convert --calibrate: what they print, and what they refuse.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
original=$dir/original.gguf small=$dir/small.gguf
works "$G" synth "$original" --type f32
works "$G" convert "$original" "$small" --type q4_0
n='[0-9]+\.[0-9]+(e-[0-9]+)?'

# The table.
works "$G" compare "$original" "$small"
check "which is which" out_matches "^A  $original${newline}B  $small$newline"
check "sizes" out_matches "${newline}weights +19 MB +2\.[0-9] MB$newline"
check "bits" out_matches "${newline}bits a weight +32\.000 +4\.[0-9]+$newline"
check "perplexities" out_matches "${newline}perplexity +$n +$n$newline"
check "tokens" out_matches "B beside A, over [0-9]{4} tokens$newline"
check "change" out_matches "${newline}perplexity +[+-]$n% \+- $n%$newline"
check "divergence" out_matches "KL divergence +mean $n \+- $n, 99% of tokens below $n, worst $n$newline"
check "agreement" out_matches "same top token [0-9.]+% of tokens$newline"
check "ten tensors" same "$(grep -cE '^[0-9.]+  f32 +q[46]_[0k] +' "$dir/.out")" 10
check "random weights expect nothing of a text" err_is "gemmule: note: A expects little of the text that \
is built in; with --text FILE both read what they are for$newline"
works "$G" compare "$small" "$small" --ctx 64
check "itself" out_has 'KL divergence  mean 0.000000 +- 0.000000, 99% of tokens below 0.000000, worst 0.000000'
check "agrees" out_has 'same top token 100.00% of tokens'
check "has no worst tensor" out_has 'No tensor differs.'

# For machines.
works "$G" compare "$original" "$small" --json
check "one line" same "$(wc -l <"$dir/.out")" 1
side="\\{\"model\":\"[^\"]+\",\"bytes\":[0-9]+,\"bits\":$n,\"perplexity\":$n\\}"
check "both models" out_matches "^\\{\"a\":$side,\"b\":$side,\"tokens\":[0-9]+,"
check "how far" out_matches "\"ppl\":\\{\"ratio\":$n,\"error\":$n\\},\"kl\":\\{\"mean\":$n,\"error\":$n,\"p99\":$n,\"worst\":$n\\},\"same_top\":$n,\"logprob_diff\":$n,"
check "tensors" out_matches "\"tensors\":\\[(\\{\"tensor\":\"[^\"]+\",\"types\":\\[\"f32\",\"q[46]_[0k]\"\\],\"rmse\":$n\\},?){10}\\]\\}$newline$"

# A text of the user's own.
echo 'One sentence, and no more.' >"$dir/text"
works "$G" compare "$original" "$small" --text "$dir/text" --json
check "is read" out_matches '"tokens":[0-9]{2},'
from_file=$out
try bash -c "'$G' compare '$original' '$small' --text - --json <'$dir/text'"
check "from standard input too" out_is "$from_file"

# Calibrating.
works "$G" convert "$original" "$dir/calibrated.gguf" --type q4_0 --calibrate "$dir/text"
check "it says so" err_has 'read the text in'
check "the size is the same" same "$(stat -c %s "$dir/calibrated.gguf")" "$(stat -c %s "$small")"
check "the weights are not" eval '! cmp -s "$dir/calibrated.gguf" "$small"'
works "$G" compare "$original" "$dir/calibrated.gguf"
refused 2 'expected it or --calibrate' "$G" convert "$original" "$dir/x.gguf" --plain --calibrate "$dir/text"
refused 1 "$dir/none: No such file" "$G" convert "$original" "$dir/x.gguf" --calibrate "$dir/none"
try "$G" convert "$original" "$dir/x.gguf" --calibrate /dev/null
check "an empty text" rc_is 1
check "is no text" err_has 'text: it has 0 tokens'
check "and makes no file" test ! -e "$dir/x.gguf"

# Mistakes.
refused 2 '1 word is given, expected 2: A B' "$G" compare "$original"
refused 2 '3 words are given' "$G" compare "$original" "$small" "$small"
refused 2 '--backend is abacus' "$G" compare "$original" "$small" --backend abacus
refused 1 "$dir/none" "$G" compare "$original" "$dir/none"
refused 1 "$dir/none: No such file" "$G" compare "$original" "$small" --text "$dir/none"
refused 1 "$dir: Is a directory" "$G" compare "$original" "$small" --text "$dir"
refused 1 'it has 0 tokens' "$G" compare "$original" "$small" --text /dev/null
refused 1 'expected one shape' "$G" compare "$original" tests/golden/gqa4
refused 1 'windows of 4294967295 tokens, expected 2 to' "$G" compare "$original" "$small" --ctx 4294967295

# Ctrl-C.
head -c 300000 /dev/urandom | base64 >"$dir/long"
"$G" compare "$original" "$small" --text "$dir/long" --backend ref >"$dir/.out" 2>"$dir/.err" &
pid=$!
sleep 1
kill -INT $pid
wait $pid
rc=$? last="compare, interrupted"
kept
check "Ctrl-C ends it" rc_is 130
check "without a word" eval '[ -z "$out$err" ]'
finish
