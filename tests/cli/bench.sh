#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule bench: the shapes of its three outputs, and what decides a hash. Nothing about speed.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash

short=(bench -m "$tiny" -p 24 -n 3 -r 1)
ref=(bench -m "$tiny" -r 1 --backend ref-int8) # whose roof is quickly measured
real='[0-9]+\.[0-9]' hash='[0-9a-f]{16}'

# The table.
works "$G" "${short[@]}" -r 2
check "what was measured, and where" \
    out_matches "^$tiny, 5\.0 MB q8_0; cpu [a-z0-9]+, [0-9]+ threads?, KV cache f16; [^$newline]+$newline"
check "columns" out_matches "${newline}test +tok/s +speed +roof +share +spread +logits hash +check$newline"
check "a row of a prompt" \
    out_matches "${newline}prefill 24 +$real +$real Gop/s +$real +$real% +$real%  $hash  -$newline"
check "a row of an answer" \
    out_matches "${newline}decode 3 +$real +$real GB/s +($real +$real%|- +-) +$real%  $hash  -$newline$"
check "one line each" same "$(wc -l <"$dir/.out")" 4
check "nothing is said elsewhere" err_is ''
check "columns line up" same "$(tail -n 3 "$dir/.out" | awk '{ print length - length($NF) }' | sort -u | wc -l)" 1
hashes() { grep -oE "  $hash  " "$dir/.out"; }
first=$(hashes)
works "$G" "${short[@]}" --threads 1 --isa c
check "neither repetitions, threads nor instructions change a hash" same "$(hashes)" "$first"
check "the rung in use" out_has '; cpu c, 1 thread, '
works "$G" "${short[@]}" --kv-type q8_0
check "the type of the KV cache does" eval '[ "$(hashes)" != "$first" ]'
check "and is shown" out_has 'KV cache q8_0'

# Lists.
works "$G" "${ref[@]}" -p 5,9 -n 2 -d 0,33 -b 1,3
check "every test once, in order" same "$(sed 1,2d "$dir/.out" | sed 's/  .*//')" "prefill 5
prefill 5 @33
prefill 9
prefill 9 @33
decode 2
decode 2 x3
decode 2 @33
decode 2 @33 x3"
works "$G" "${ref[@]}" -p 0 -n 2
check "no prompt" same "$(sed 1,2d "$dir/.out" | wc -l)" 1
works "$G" "${ref[@]}" -p 7 -n 0
check "no answer" same "$(sed 1,2d "$dir/.out" | wc -l)" 1

# Beside ref-int8.
works "$G" "${ref[@]}" -p 24 -n 3 --check
check "it is itself" out_matches "prefill 24 [^$newline]+  0${newline}decode 3 [^$newline]+  0$newline"
check "a roof that nobody measures is not there" out_matches "prefill 24 +$real +$real Gop/s +- +- +"

# For machines.
works "$G" "${short[@]}" --csv --check
head='commit,machine,model,type,bytes,backend,isa,device,driver,threads,kv_type,test,prompt,decode,depth,batch,reps,tok_s,gb_s,gop_s,roof_gb_s,roof_gop_s,share,spread,hash,check'
check "the first line names the columns" out_matches "^$head$newline"
row="[0-9a-z.-]+,\"[^\"]+\",\"$tiny\",q8_0,[0-9]+,cpu,[a-z0-9]+,\"\",\"\",[0-9]+,f16"
n='[0-9.e+-]+'
check "prompt" out_matches "$newline$row,prefill 24,24,0,0,1,1,$n,,$n,$n,$n,$n,$n,$hash,$n$newline"
check "answer" out_matches "$newline$row,decode 3,0,3,0,1,1,$n,$n,,$n,$n,($n)?,$n,$hash,$n$newline$"
for redirect in '>' '>>' '>>'; do
    works bash -c "'$G' bench -m '$tiny' -p 4 -n 0 -r 1 --backend ref --csv $redirect '$dir/all.csv'"
done
check "the columns are named once in a file that grows" same "$(grep -c "^$head" "$dir/all.csv")" 1
check "and have a row each time" same "$(wc -l <"$dir/all.csv")" 4
cp "$tiny" "$dir/a\"b,c.gguf"
works "$G" bench -m "$dir/a\"b,c.gguf" -p 4 -n 0 -r 1 --backend ref --csv
check "names are quoted" out_has ",\"$dir/a\"\"b,c.gguf\",q8_0,"
works "$G" "${short[@]}" --json
check "JSON on one line" same "$(wc -l <"$dir/.out")" 1
check "what and where" out_matches '^\{"commit":"[^"]+","machine":"[^"]+","model":"[^"]+","type":"q8_0","bytes":[0-9]+,"backend":"cpu","isa":"[^"]+","device":"","driver":"","threads":[0-9]+,"kv_type":"f16","tests":\['
check "tests" out_matches "\\{\"test\":\"decode 3\",\"prompt\":0,\"decode\":3,\"depth\":0,\"batch\":1,\"reps\":1,\"tok_s\":$n,\"gb_s\":$n,\"gop_s\":null,\"roof_gb_s\":$n,\"roof_gop_s\":$n,\"share\":($n|null),\"spread\":$n,\"hash\":\"$hash\",\"check\":null\\}\\]\\}"
works "$G" "${ref[@]}" -p 7 -n 0 --json
check "nothing is null's word" out_matches "\"gb_s\":null,\"gop_s\":$n,\"roof_gb_s\":$n,\"roof_gop_s\":null,\"share\":null,"
works "$G" "${ref[@]}" -p 7 -n 0 --csv
check "and an empty field's" out_matches ",prefill 7,7,0,0,1,1,$n,,$n,$n,,,$n,$hash,$newline$"
works "$G" "${ref[@]}" -p 7 -n 0 -v
check "and no line's" eval '[[ $err == *"read roof "* && $err != *"int8 roof"* ]]'
works "$G" "${short[@]}" -v
check "-v says the roof" err_has 'read roof       '
check "both of them" err_has 'int8 roof       '
check "a processor's clock needs no warm-up" eval '[[ $err != *warm-up* ]]'

works "$G" synth "$dir/mixed.gguf" --type q4_0 --head-type q8_0
works "$G" bench -m "$dir/mixed.gguf" -p 4 -n 0 -r 1 --backend ref
check "both types" out_has ' MB q4_0+q8_0; '

# Mistakes.
list='expected whole numbers from'
for bad in '' ',' 1, ,1 x -1 1.5; do
    refused 2 "--prompt is $bad, $list 0 to 4294967295" "$G" bench -m "$tiny" "--prompt=$bad"
done
refused 2 "--batch is 1,0, $list 1 to 512" "$G" bench -m "$tiny" -b 1,0
refused 2 "--depth is 4294967296, $list" "$G" bench -m "$tiny" -d 4294967296
refused 2 '--reps is 0, expected a whole number from 1 to 64' "$G" bench -m "$tiny" -r 0
refused 2 '--csv and --json are two formats' "$G" bench -m "$tiny" --csv --json
refused 2 'there is a word, hello' "$G" bench -m "$tiny" hello
refused 2 '-p 0 and -n 0 leave nothing to measure' "$G" bench -m "$tiny" -p 0 -n 0
refused 2 '-p 0 and -n 0 leave nothing to measure' "$G" bench -m "$tiny" -p 0,0 -n 0
refused 2 'unknown option --ctx' "$G" bench -m "$tiny" --ctx 100
refused 2 '--backend is abacus' "$G" bench -m "$tiny" --backend abacus
refused 1 "$dir/nothing.gguf" "$G" bench -m "$dir/nothing.gguf"
refused 1 'takes 5513 positions, and the model was made for 2048 (prefill 512 @5000)' \
    "$G" bench -m "$tiny" -d 5000 --json

# At a terminal, a note of what is being measured, which goes again.
if command -v script >/dev/null; then
    try script -qec "'$G' bench -m '$tiny' -p 4 -n 0 -r 1 --backend ref" /dev/null
    check "a note" out_has $'\rprefill 4 ...\033[K\r\033[Kprefill 4  '
    try env TERM=dumb script -qec "'$G' bench -m '$tiny' -p 4 -n 0 -r 1 --backend ref" /dev/null
    check "but not where it could not go again" eval '[[ $out != *$'"'\033'"'* && $out == *"prefill 4  "* ]]'
else
    echo "skip: script(1) is not here, so nothing was tried at a terminal"
fi

# Kernels, which the processor has none of that it could time.
refused 1 "bench: the backend cpu times no kernels, vulkan does" "$G" "${short[@]}" --kernels --json
refused 2 "--csv has no place for --kernels, --json has" "$G" "${short[@]}" --kernels --csv
finish
