#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The Vulkan backend as a user sees it, on Mesa's lavapipe: devices and how to choose one, and what
# is said where there is none.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash
[[ $("$G" --version) != *"vulkan   not in this build"* ]] || {
    echo "skip: this build has no Vulkan backend"
    exit 77
}
lvp=(scripts/vulkan-env lvp)
none=("${lvp[@]}" env VK_ICD_FILENAMES=/dev/null VK_DRIVER_FILES=/dev/null)
short=(--max-tokens 2 --seed 1 hello)

works "${lvp[@]}" "$G" devices
check "should show its memory" out_matches 'heap 0: [0-9.]+ GB, [0-9.]+ GB free'
check "should show kernels" out_matches 'attend +attend '
check "should say what auto does" out_has "   auto      passes it over: it is the processor"
check "should say nothing else" err_is ''
works "${lvp[@]}" "$G" devices --json
check "should be JSON of one device" node -e 'const all = JSON.parse(process.argv[1]).devices, d = all[0];
    process.exit(all.length === 1 && d.usable && d.kind === "cpu" && d.heaps[0].bytes > 0 && d.kernels.length ? 0 : 1)' "$out"
works "${none[@]}" "$G" devices
check "should say why there is none" out_matches '^none: vulkan: the loader finds no driver on this machine'
# A library that is none, and a driver's file that is broken.
mkdir "$dir/lib"
cc -shared -x c -o "$dir/lib/libvulkan.so.1" - <<<'int nothing;'
works env LD_LIBRARY_PATH="$dir/lib" "$G" devices
check "should take no such loader" out_matches '^none: vulkan: there is no Vulkan loader'
echo '{' >"$dir/broken.json"
works "${lvp[@]}" env VK_ICD_FILENAMES="$dir/broken.json" VK_DRIVER_FILES="$dir/broken.json" "$G" devices
check "should suspect the file" out_matches '^none: vulkan: no host memory left .* or a driver.s \.json file .* is broken'
works "${none[@]}" "$G" devices
check "and what has one" out_matches "^[^$newline]+${newline}Debian and Ubuntu [^$newline]*mesa-vulkan-drivers[^$newline]*$newline$"

for none_such in 1 2 7; do # there are 1 and 2 in its name
    refused 1 "vulkan: no device is $none_such; there are: 0 llvmpipe" \
        "${lvp[@]}" "$G" run --backend vulkan --device $none_such "${short[@]}"
done
refused 1 "vulkan: no device is geforce; there are: 0 llvmpipe" \
    "${lvp[@]}" "$G" run --backend vulkan --device geforce "${short[@]}"
refused 1 "vulkan: the loader finds no driver on this machine" \
    "${none[@]}" "$G" run --backend vulkan "${short[@]}"
works "${lvp[@]}" "$G" run --backend vulkan --device LLVMpipe "${short[@]}"
check "should say what it waits for" eval '[[ $err =~ ^"gemmule: note: llvmpipe"[^$newline]*": kernels are compiled and checked, this once"$newline$ ]]'
same_text=$out
works "${lvp[@]}" "$G" run --backend vulkan --device LLVMpipe "${short[@]}"
check "should say it once" err_is ''
bits=$("${lvp[@]}" "$G" devices | grep -oE '[0-9]+ bits' | head -n 1)
works "${lvp[@]}" "$G" run --backend vulkan --device "${bits% bits}" "${short[@]}" # of its name
works "$G" run --backend cpu "${short[@]}"
check "should be the cpu's text" out_is "$same_text"

# What is taken where nobody says, and why. No GPU is here: a device that computes on the processor
# and one that only compiles are passed over.
works "${lvp[@]}" "$G" run -v "${short[@]}"
check "should pass over lavapipe" eval '[[ $err =~ "cpu (vulkan: llvmpipe"[^\n]*" is the processor, not a GPU)" ]]'
# RADV forgets 128 bytes of its null device, which is not ours to judge.
works env ASAN_OPTIONS=detect_leaks=0 scripts/vulkan-env phoenix "$G" run -v "${short[@]}"
check "should pass over the null device" err_has "cpu (vulkan: Null hardware (RADV PHOENIX) has no memory"
works "${none[@]}" "$G" run -v "${short[@]}"
check "should pass over nothing" err_has "cpu (vulkan: the loader finds no driver on this machine)"
works "${lvp[@]}" "$G" run -v --device 0 "${short[@]}"
check "should take the device, and name it" eval '[[ $err =~ "backend"\ +"vulkan on llvmpipe" ]]'
works "${lvp[@]}" "$G" run -v --backend vulkan "${short[@]}"
check "should name the one that it took" eval '[[ $err =~ "backend"\ +"vulkan on llvmpipe" ]]'
works "${lvp[@]}" "$G" chat -v --backend vulkan --max-tokens 2 <<<Hello
check "should name it in a chat" eval '[[ $err =~ "backend"\ +"vulkan on llvmpipe" ]]'
# The server says the same on its line.
serving() { # options...
    : >"$dir/.out" # the line of the one before is not its own
    scripts/vulkan-env lvp "$G" serve -m "$tiny" --port 0 "$@" >"$dir/.out" 2>"$dir/.err" &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        grep -q ' on http' "$dir/.out" && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    port=$(sed -nE 's|.* on http://[^ ]*:([0-9]+),.*|\1|p' "$dir/.out")
    props=$(curl -s "http://127.0.0.1:$port/props")
    kill $pid 2>/dev/null
    wait $pid
    rc=$? last="serve $*"
    kept
}
serving
check "should say why not vulkan" out_matches ', backend cpu \(vulkan: llvmpipe[^,]*, .* is the processor, not a GPU\), weights '
check "should have no device" eval '[[ $props == *"\"backend\":\"cpu\",\"device\":\"\","* ]]'
serving --backend cpu
check "should be silent about what was asked for" out_has ', backend cpu, weights '
serving --backend vulkan
check "should name the device" out_has ', backend vulkan on llvmpipe ('
check "should have it among its properties" eval '[[ $props == *"\"device\":\"llvmpipe ("* ]]'
works "${lvp[@]}" "$G" bench -v -p 0 -n 1 -r 1
check "should say why" err_has "is the processor, not a GPU)"

# What each kind of kernel takes.
bench=("${lvp[@]}" "$G" bench -m "$tiny" --backend vulkan -n 2 -r 1 --tune off --kernels)
works "${bench[@]}" -p 20
row='[0-9]+ +[0-9]+\.[0-9] +[0-9]+\.[0-9]% +'
check "should have products" out_matches "$newline  ffn_gate, ffn_up, norms +matmul\.q8_0 +$row[0-9]+\.[0-9]+$newline"
check "should have attention" out_matches "$newline  attention, local +attend +$row[0-9]+\.[0-9]+$newline"
check "should have a sum for each step" same "$(grep -c '^  one after the other' "$dir/.out")" 2
works "${bench[@]}" -p 0 --json
check "should be JSON" node -e 'const t = JSON.parse(process.argv[1]).tests[0];
    process.exit(t.kernels.length > 5 && t.kernels.every(k => k.n > 0 && k.us >= 0) ? 0 : 1)' "$out"

# What the driver compiled is kept, and a file that is wrong costs a word in -v's.
kept=("$XDG_CACHE_HOME"/gemmule/vulkan-*.pipelines)
check "should have kept pipelines" test -s "${kept[0]}"
on_lvp=("${lvp[@]}" "$G" run --backend vulkan "${short[@]}")
works "${on_lvp[@]}" -v
check "should say nothing of it" eval '[[ $err != *"pipelines"* ]]'
cp "${kept[0]}" "$dir/good"
printf 'x' >>"${kept[0]}"
works "${on_lvp[@]}"
check "should be silent" err_is ''
check "should have replaced it" cmp -s "${kept[0]}" "$dir/good"
head -c 50 "$dir/good" >"${kept[0]}"
works "${on_lvp[@]}" -v
check "should say that it is dropped" err_has ".pipelines was dropped: it is cut short"
check "should have replaced it again" cmp -s "${kept[0]}" "$dir/good"
works env -u HOME -u XDG_CACHE_HOME "${on_lvp[@]}"
check "should need no folder" out_is "$same_text"

# Kernels are tried on the first use of a device, and all of them by selftest.
check "should remember the trial" test -s "${kept[0]%.pipelines}.selftest"
works "$G" selftest --backend cpu --type q4_0
check "should have a line an op" out_matches 'matmul +q4_0 +1 to 128 +[0-9.e-]+ +2e-06  ok'
check "should have whole layers" out_matches 'layer +q4_0 +1 to 128 +[0-9.e-]+ +0.02  ok'
check "should count" out_matches '([0-9]+) of [0-9]+ tries were right on this processor'
works "${lvp[@]}" "$G" selftest --device llvmpipe --type f16 --json
check "should be JSON" node -e 'const s = JSON.parse(process.argv[1]);
    process.exit(s.ok && s.n === s.tries.length && s.tries.every(t => t.ok && t.kernels.length) ? 0 : 1)' "$out"
refused 1 "vulkan: no device is geforce" "${lvp[@]}" "$G" selftest --device geforce
refused 1 "selftest: there is no type q9" "${lvp[@]}" "$G" selftest --type q9
refused 2 "there is a word, all" "$G" selftest all

# Too little memory is said before any is taken, with what would do.
works "$G" synth "$dir/270m.gguf" --size 270m --type q4_0
if [ "$(awk '/^MemTotal/ { print ($2 > 200000000) }' /proc/meminfo)" = 1 ]; then
    echo "skip: 200 GB of memory are not too little for 1024 requests"
else
    refused 1 "the KV cache of 1024 requests of 32768 tokens 240451; one request of " \
        "${lvp[@]}" "$G" serve --backend vulkan -m "$dir/270m.gguf" --parallel 1024 --ctx 32768 \
        --kv-type f32 --port 0
    check "should say what is there" eval '[[ $err =~ "memory: llvmpipe"[^:]*" has "[0-9]+" MB free" ]]'
fi

# What is fastest is tried where it is asked for: nothing above has, since lavapipe is no GPU.
check "should not tune a processor by itself" test ! -e "${kept[0]%.pipelines}.tuning"
works "${lvp[@]}" "$G" tune --show
check "should say that there is nothing" out_matches '^# nothing is kept about llvmpipe[^:]*: gemmule tune finds it'"$newline$"
works "${lvp[@]}" "$G" tune --reset
check "should say that there was nothing" out_matches '^nothing was kept about llvmpipe'
works "${lvp[@]}" "$G" tune --ways 2 --seconds 1
check "should say what is left" eval '[[ $err =~ ^"gemmule: note: steps of "[0-9]+" rows and more were not tried: the time for it was over"$newline$ ]]'
check "should have a table" out_matches "^product +ways +usual us +best us  chosen${newline}kernels of one row .*${newline}q8_0 "
check "should name the device" out_has " products are faster than usual on llvmpipe"
check "should keep it" test -s "${kept[0]%.pipelines}.tuning"
n=$(wc -l <"$dir/.out")
works "${lvp[@]}" "$G" tune --show
check "should show as many" same "$(wc -l <"$dir/.out")" "$n"
cp "$dir/.out" "$dir/kernels"
works "${lvp[@]}" "$G" tune --show --json
check "should be JSON" out_matches '^\{"device":"llvmpipe[^"]*","n":[0-9]+,"n_changed":[0-9]+,"products":\[\{"product":"kernels of one row, plan [0-9a-f]{16}".*\{"product":"q8_0 '
works "${lvp[@]}" "$G" run --backend vulkan --temp 0 --max-tokens 3 "Once upon"
tuned=$out
works "${lvp[@]}" "$G" run --backend vulkan --tune off --temp 0 --max-tokens 3 "Once upon"
check "should be the same text" out_is "$tuned"
# What it shows can be given back, if it is of that model, and a line that is wrong is named.
works "${lvp[@]}" "$G" run --backend vulkan --tune "$dir/kernels" --temp 0 --max-tokens 3 "Once upon"
check "should be the same text" out_is "$tuned"
check "should be of use" err_is ''
works "$G" synth "$dir/other.gguf" --size tiny --type q6_k
works "${lvp[@]}" "$G" run -m "$dir/other.gguf" --backend vulkan --tune "$dir/kernels" "${short[@]}"
check "should say that it is of no use" err_has "note: $dir/kernels has kernels for none of the model's products"
printf 'q8_0 64x64, 1 rows\tmatmul:7\n' >>"$dir/kernels"
refused 1 "/kernels: line $((n + 1)) has a kernel \"matmul:7\", expected one that this device has" \
    "${lvp[@]}" "$G" run --backend vulkan --tune "$dir/kernels" Hi
refused 1 "always: cannot be opened: No such file" "${lvp[@]}" "$G" run --backend vulkan --tune always Hi
works "$G" run --backend cpu --tune "$dir/kernels" "${short[@]}"
check "should say that it is of no use" err_has "/kernels is not used: the cpu backend has no kernels"
works "${lvp[@]}" "$G" tune --reset
check "should say that it forgets" out_matches '^what was found about llvmpipe[^:]* is forgotten'
check "should forget" test ! -e "${kept[0]%.pipelines}.tuning"
# What cannot be kept is said below the table, and is a failure.
unkept() { # words of the sentence, command...
    try "${@:2}" "$G" tune --ways 1 --seconds 1
    check "should fail" rc_is 1
    check "should say: $1" err_has "$1"
    check "should have the table's end" out_has " products are faster than usual on llvmpipe"
}
unkept ".tuning was not written: " "${lvp[@]}" env XDG_CACHE_HOME=/proc/nope
unkept "gemmule: nothing was kept: neither XDG_CACHE_HOME nor HOME says where" \
    "${lvp[@]}" env -u HOME -u XDG_CACHE_HOME
works "${lvp[@]}" env -u HOME -u XDG_CACHE_HOME "$G" tune --reset
check "should forget nothing" out_matches '^nothing was kept about llvmpipe'
# Ctrl-C stops it; at a terminal a bar shows how far it is.
"${lvp[@]}" "$G" tune --ways 2 >"$dir/.out" 2>"$dir/.err" &
pid=$!
sleep 2
while kill -INT $pid 2>/dev/null; do # the first may come before it listens
    sleep 3
done
wait $pid
rc=$? last="tune, interrupted"
kept
check "Ctrl-C ends it" rc_is 130
check "without a word" err_is ''
try script -qec "${lvp[*]} '$G' tune --ways 2 --seconds 1" /dev/null
check "progress at a terminal" out_matches 'trying kernels \[=* *\] +[0-9]+%'
check "should count no bytes" eval '[[ ! $out =~ "trying kernels ["[^]]*"]"[^%]*"% "[0-9] ]]'
refused 2 '--show and --reset are two things' "$G" tune --show --reset
refused 1 'vulkan: no device is geforce' "${lvp[@]}" "$G" tune --device geforce

# A step is one submit, and sets nothing up.
works "${lvp[@]}" "$G" bench --backend vulkan -p 0 -n 4 -r 1 -v
check "should count" eval '[[ $err =~ "1.0 submits, "[0-9.]+" dispatches, "[0-9.]+" barriers, "[0-9]+" bytes up, " ]]'
check "should say where memory is" eval '[[ $err =~ "device memory"\ +[0-9.]+" MB in heap 0" ]]'
check "should set nothing up" err_has "0 allocations, 0 recordings"
check "should name the device" eval '[[ $err =~ "device"\ +"llvmpipe" ]]'
check "and no thread of the processor" out_matches "; vulkan on llvmpipe \([^$newline]*\), KV cache f16; "
check "should say how fast weights came" eval '[[ $err =~ "load"\ +[0-9.]+" GB/s of the file"$newline ]]'
check "should say where that time went" eval '[[ $err =~ "load, where"\ +[0-9]+" ms for the device"[^%]*[0-9]+" % laying out, " ]]'
check "should not warm a processor up" eval '[[ $err != *warm-up* ]]'
works "${lvp[@]}" "$G" bench --backend vulkan -p 0 -n 1 -r 1 --csv --check
check "should be near cpu" out_matches ',0(\.[0-3][0-9]*)?'"$newline"'$'
check "should have device and driver" eval '[[ $out =~ ",vulkan,spir-v,\"llvmpipe"[^\"]*"\",\"llvmpipe"[^\"]*"\"," ]]'
finish
