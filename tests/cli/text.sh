#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule tokenize and gemmule logits.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash

ids() { grep -oE '"id":[0-9]+' "$dir/.out" | cut -d: -f2 | paste -sd,; }

# Tokens.
works "$G" tokenize -m "$tiny" a
check "a table" out_matches "^ +id  piece$newline +2  \"<bos>\"$newline +[0-9]+  \"a\"$newline\$"
check "and no more" err_is ''
works "$G" tokenize -m "$tiny" --json a
check "JSON" out_matches '^\{"tokens":\[\{"id":2,"piece":"<bos>"\},\{"id":[0-9]+,"piece":"a"\}\]\}'"$newline\$"
works "$G" tokenize -m "$tiny" --json --no-bos '<start_of_turn>'
check "a control token" out_is '{"tokens":[{"id":105,"piece":"<start_of_turn>"}]}'"$newline"
works "$G" tokenize -m "$tiny" --json --no-bos --no-special '<start_of_turn>'
check "plain text" eval '[[ $out != *\"id\":105* ]]'
works "$G" tokenize -m "$tiny" --json hello world
joined=$out
works "$G" tokenize -m "$tiny" --json 'hello world'
check "words are joined by blanks" out_is "$joined"
try bash -c "printf 'hello world' | '$G' tokenize -m '$tiny' --json"
check "standard input" out_is "$joined"
try bash -c "printf 'hello world\n' | '$G' tokenize -m '$tiny' --json"
check "byte for byte: a newline at the end is a token" eval '[ "$out" != "$joined" ]'
works "$G" tokenize -m "$tiny" --json -- --json
check "after -- all is text" out_has '<bos>'
works "$G" tokenize -m "$tiny" --json
check "no text is no token but the first" out_is '{"tokens":[{"id":2,"piece":"<bos>"}]}'"$newline"
works "$G" tokenize -m "$tiny" --json --no-bos
check "or none" out_is '{"tokens":[]}'"$newline"
try bash -c "printf 'a\0b\377' | '$G' tokenize -m '$tiny' --json --no-bos"
check "a NUL is a byte as any other" out_has '{"id":238,"piece":"<0x00>"}'
check "what is no UTF-8 is U+FFFD" out_matches '<0xEF>.*<0xBF>.*<0xBD>|"piece":"'$'\xef\xbf\xbd'
try bash -c "printf 'a\n\tb  c\033' | '$G' tokenize -m '$tiny' --no-bos"
check "control characters are escaped" out_has '"\n'
check "blanks are seen" out_matches '  +"'
check "no raw control character" eval '! LC_ALL=C grep -qP "[\x00-\x08\x0b-\x1f]" "$dir/.out"'
works "$G" tokenize -m "$tiny" -v a b
check "-v counts" err_has 'tokens          '
works "$G" tokenize -m tests/golden/gqa4 --json x
check "a Hugging Face folder" out_has '{"tokens":[{"id":2,"piece":"<bos>"}'

# A megabyte.
yes 'the quick brown fox' | head -c 1000000 >"$dir/big"
last='tokenize < a megabyte'
"$G" tokenize -m "$tiny" --json <"$dir/big" >"$dir/.out" 2>"$dir/.err"
rc=$?
out= err=
check "a megabyte of text" rc_is 0
check "has many tokens" test "$(grep -o '"id":' "$dir/.out" | wc -l)" -gt 100000

# The likeliest next tokens.
works "$G" logits -m "$tiny" "Once upon"
check "ten by default" same "$(wc -l <"$dir/.out")" 11
check "a table" out_matches "^ +id +logprob +share  piece$newline +[0-9]+ +-[0-9.]+ +[0-9.]+%  \""
check "the note goes elsewhere" err_is "$note"
works "$G" logits -m "$tiny" --top 3 --json "Once upon"
by_text=$out
candidate='\{"id":[0-9]+,"piece":"[^"]*","logprob":-[0-9.e-]+\}'
check "JSON" out_matches "^\{\"top\":\[$candidate,$candidate,$candidate\]\}$newline\$"
check "best first" same "$(grep -oE -- '-[0-9.]+' "$dir/.out" | sort -rg | paste -sd,)" \
    "$(grep -oE -- '-[0-9.]+' "$dir/.out" | paste -sd,)"
try "$G" tokenize -m "$tiny" --json "Once upon"
tokens=$(ids)
works "$G" logits -m "$tiny" --top 3 --json --tokens "$tokens"
check "the same by ids" out_is "$by_text"
try bash -c "printf 'Once upon' | '$G' logits -m '$tiny' --top 3 --json"
check "the same by standard input" out_is "$by_text"
works "$G" logits -m "$tiny" --top 3 --json --no-bos "Once upon"
check "another without the first token" eval '[ "$out" != "$by_text" ]'
works "$G" logits -m "$tiny" --top 3 --json --tokens "${tokens#2,}"
without=$out
works "$G" logits -m "$tiny" --top 3 --json --no-bos "Once upon"
check "which is the same by ids" out_is "$without"
works "$G" logits -m "$tiny" --top 1 --json "Once upon"
best=$(ids)
try "$G" run -m "$tiny" --raw "Once upon" --temp 0 --max-tokens 1
greedy=$out
try "$G" run -m "$tiny" --raw "Once upon" --logit-bias "$best=1000" --max-tokens 1
check "the likeliest is what run takes without temperature" out_is "$greedy"
works "$G" logits -m "$tiny" --top 4000000000 --json x
check "at most all tokens" same "$(grep -o '"id":' "$dir/.out" | wc -l)" 2048
sum=$(grep -oE '"logprob":[^}]*' "$dir/.out" | cut -d: -f2 | awk '{ s += exp($1) } END { printf "%.3f", s }')
check "whose probabilities sum to 1" same "$sum" 1.000
works "$G" logits -m "$tiny" --top 1 -v x
check "-v shows the hash" eval '[[ $err =~ logits\ hash\ +[0-9a-f]{16} ]]'
many=$(seq -s, 10 300)
works "$G" logits -m "$tiny" --top 1 --tokens "$many,$many,$many"
check "a longer prompt finds room by itself" rc_is 0
refused 1 'token 1 is 2048, expected 0 to 2047' "$G" logits -m "$tiny" --tokens 2,2048
refused 1 'prompt: it has no tokens' "$G" logits -m "$tiny" --no-bos
refused 1 'the context has room for 3 with one to answer' "$G" logits -m "$tiny" --ctx 4 --tokens 2,3,4,5
works "$G" logits -m "$tiny" --backend ref-int8 --top 1 x
works "$G" logits -m tests/golden/sharded --top 2 --json --tokens 2,5
check "a Hugging Face folder in parts" out_matches '^\{"top":\['
finish
