#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gemmule convert: what it makes, what it says, and that nothing is left when it does not succeed.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
work=$dir/work
mkdir "$work"
source=$work/source.gguf
"$G" synth "$source" --type bf16 2>/dev/null
err_matches() { [[ $err =~ $1 ]]; }
left() { ls -A "$work" | grep -v '^source.gguf$'; }

# What it says and makes.
works "$G" convert "$source" "$work/out.gguf" --type q4_k_m
check "nothing on standard output" out_is ''
check "first the size and the room" err_matches 'out\.gguf will have [0-9.]+ MB, [0-9.]+ bits a weight'
check "and the room on the disk" err_has 'the disk has'
check "then what was done" err_has "wrote $work/out.gguf in"
check "nothing beside it" same "$(left)" out.gguf
works "$G" inspect "$work/out.gguf"
check "the types of the mix" out_matches "q4_k +[0-9]+ tensors"
check "and its exceptions" out_matches "q6_k +[0-9]+ tensors"
check "llama.cpp's number for it" out_matches "general\.file_type +u32 +15$newline"
check "the chat template" out_matches 'tokenizer\.chat_template +string'
works "$G" tokenize -m "$source" 'Once upon a time, 12 foxes'
ids=$out
works "$G" tokenize -m "$work/out.gguf" 'Once upon a time, 12 foxes'
check "the same ids" out_is "$ids"
works "$G" convert "$source" "$work/f32.gguf" --type f32
works "$G" logits -m "$source" --backend ref 'Hello'
ids=$out
works "$G" logits -m "$work/f32.gguf" --backend ref 'Hello'
check "f32 is the same model" out_is "$ids"
works "$G" convert tests/golden/multimodal "$work/text.gguf" --type q8_0
check "images are left out, and that is said" err_has 'tensors for images are left out'
check "so are rows that do not fit" err_has 'do not fit the type'
works "$G" convert "$work/out.gguf" "$work/again.gguf" --type q8_0
check "quantising twice is said" err_has 'quantised already'
works "$G" convert --threads 1 "$source" "$work/one.gguf" --type q4_k_m
check "threads change nothing" cmp "$work/out.gguf" "$work/one.gguf"
works "$G" convert --plain "$source" "$work/plain.gguf" --type q4_k_m
check "plain rounding is another file of the same size" eval \
    '! cmp -s "$work/out.gguf" "$work/plain.gguf" &&
     [ "$(stat -c %s "$work/out.gguf")" = "$(stat -c %s "$work/plain.gguf")" ]'
head -c 4000 README.md >"$dir/text"
works "$G" convert --calibrate "$dir/text" "$source" "$work/calibrated.gguf" --type q4_k_m
check "calibration makes another file of the same size" eval \
    '! cmp -s "$work/out.gguf" "$work/calibrated.gguf" &&
     [ "$(stat -c %s "$work/out.gguf")" = "$(stat -c %s "$work/calibrated.gguf")" ]'
refused 1 "$dir/no-text: No such file" \
    "$G" convert --calibrate "$dir/no-text" "$source" "$work/x.gguf"
: >"$dir/empty"
try "$G" convert --calibrate "$dir/empty" "$source" "$work/x.gguf"
check "a text of nothing is refused" rc_is 1
check "with its length" err_has 'gemmule: text: it has 0 tokens, expected 2'
rm "$work"/[!s]*

# The command line.
refused 2 '1 word is given, expected 2: SOURCE OUT.gguf' "$G" convert "$source"
refused 2 'expected one of: ' "$G" convert "$source" "$work/x.gguf" --type q9
refused 2 'OUT.gguf is Q4_0, which is a type: --type Q4_0' "$G" convert "$source" Q4_0
refused 2 'type is "q4_k_m", expected one of: f32 ' \
    "$G" convert "$source" "$work/x.gguf" --head-type q4_k_m
refused 1 "$work/none" "$G" convert "$work/none" "$work/x.gguf"
refused 1 "$work/no/x.gguf: cannot be written" "$G" convert "$source" "$work/no/x.gguf"
refused 1 'is part of the source' "$G" convert "$source" "$source" --force
ln "$source" "$work/twin.gguf"
refused 1 'is part of the source' "$G" convert "$source" "$work/twin.gguf" --force
rm "$work/twin.gguf"
echo mine >"$work/mine.gguf"
refused 1 'is there already, and is replaced only by force (--force)' \
    "$G" convert "$source" "$work/mine.gguf"
check "it is as it was" same "$(cat "$work/mine.gguf")" mine
works "$G" convert "$source" "$work/mine.gguf" --force --type q8_0
works "$G" inspect "$work/mine.gguf"
rm "$work/mine.gguf"

# Checkpoints that something is wrong with: a shard is missing, another dtype, another shape.
cp -r tests/golden/sharded "$dir/shards"
rm "$dir/shards/model-00002-of-00003.safetensors"
refused 1 'model-00002-of-00003.safetensors: cannot be opened' \
    "$G" convert "$dir/shards" "$work/x.gguf"
cp -r tests/golden/gqa4 "$dir/dtype"
LC_ALL=C sed -i '0,/"dtype":"BF16"/s//"dtype":"F8_E"/;0,/"dtype":"F32"/s//"dtype":"I32"/' \
    "$dir/dtype/model.safetensors"
refused 1 'which is not supported; expected BF16, F16 or F32' "$G" convert "$dir/dtype" "$work/x.gguf"
cp -r tests/golden/gqa4 "$dir/shape"
sed -i 's/"intermediate_size": *[0-9]*/"intermediate_size": 50/' "$dir/shape/config.json"
refused 1 'expected [50, 44]' "$G" convert "$dir/shape" "$work/x.gguf"
head -c 100000 "$source" >"$dir/cut.gguf"
refused 1 "$dir/cut.gguf" "$G" convert "$dir/cut.gguf" "$work/x.gguf"

# A value that is not a number, found while the file is being written.
"$G" synth "$dir/nan.gguf" --type f32 2>/dev/null
printf '\000\000\300\177' |
    dd of="$dir/nan.gguf" bs=1 seek=$(($(stat -c %s "$dir/nan.gguf") - 1024)) conv=notrunc 2>/dev/null
try "$G" convert "$dir/nan.gguf" "$work/x.gguf" --type q8_0
check "a NaN is refused" rc_is 1
check "with its place" err_has 'gemmule: '"$dir/nan.gguf"': tensor output_norm.weight has the value nan in row 0, column 0'
check "nothing is left" same "$(left)" ''

# A name that has no room for what is added to it while it is written.
try "$G" convert "$source" "$work/$(printf '%0250d' 0).gguf"
check "a long name is refused" rc_is 1
check "with the reason" err_has 'cannot be made: File name too long'

# A disk that is too small: a mount of our own, which only this process sees.
if unshare -m true 2>/dev/null; then
    mkdir "$dir/small"
    try unshare -m bash -c "mount -t tmpfs -o size=2m none '$dir/small' || exit 77
        '$G' convert '$source' '$dir/small/x.gguf' --type q8_0
        rc=\$?; ls -A '$dir/small'; exit \$rc"
    if [ "$rc" = 77 ]; then
        echo "skip: tmpfs cannot be mounted here"
    else
        check "a full disk is refused" rc_is 1
        check "with both numbers" err_matches 'the disk is too full: the model needs [0-9]+ bytes, [0-9]+ are free'
        check "nothing is left there" out_is ''
    fi
else
    echo "skip: no private mount namespace can be made here"
fi

# A limit on the size of files, like a quota, that is met in the middle.
try bash -c "ulimit -f 1000; exec '$G' convert '$source' '$work/x.gguf' --type q8_0"
check "a size limit is refused" rc_is 1
check "in a sentence" err_has "$work/x.gguf: cannot be written: File too large"
check "nothing is left" same "$(left)" ''

# Signals in the middle leave nothing.
"$G" synth "$dir/large.gguf" --size 270m --type bf16 2>/dev/null
begun() { ls -l "/proc/$1/fd" 2>/dev/null | grep -q "$work/"; } # the result, which has no name yet
for end in INT:130 TERM:143 HUP:129 KILL:137; do
    signal=${end%:*}
    last="convert and SIG$signal"
    "$G" convert "$dir/large.gguf" "$work/x.gguf" --type q2_k >"$dir/.out" 2>"$dir/.err" &
    pid=$!
    for _ in $(seq 400); do
        ! begun $pid || break
        sleep 0.02
    done
    check "it has begun" begun $pid
    kill -$signal $pid
    wait $pid 2>/dev/null
    rc=$? && kept
    check "exits with ${end#*:}" rc_is "${end#*:}"
    check "no file is left" same "$(left)" ''
    [ $signal != INT ] || check "which is said" err_has 'gemmule: stopped; nothing was written'
done
finish
