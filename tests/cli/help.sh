#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Help, version and mistakes on the command line: what a new user meets first.
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/harness.bash

works "$G" --help
check "help is no error" err_is ''
overall=$out
for command in run chat serve top inspect tokenize logits bench compare synth; do
    check "help names $command" out_matches "$newline  $command +[a-z]"
done
works "$G" -h
check "-h is --help" out_is "$overall"
works "$G" help
check "help is --help" out_is "$overall"

works "$G" --version
check "version" out_matches '^gemmule [0-9]+\.[0-9]+\.[0-9]+'
check "commit" out_matches "${newline}commit +[0-9a-z]+"
check "instruction sets" out_matches "${newline}isa +"
check "backends" out_matches "${newline}backend +ref "
check "the rung in use" out_matches "${newline}backend +cpu [^$newline]*\(here: (c|avx2|avx512)\)"

declare -A options=(
    [run]='-m --model --ctx --backend --device --threads --kv-type --isa --tune --exact --system --raw --no-bos --no-special --temp --top-k --top-p
           --min-p --repeat-penalty --frequency-penalty --presence-penalty --logit-bias --seed
           --max-tokens --stop --json -v -h'
    [chat]='-m --model --ctx --backend --device --threads --kv-type --isa --tune --exact --system --no-history --temp --top-k --top-p --min-p
           --repeat-penalty --frequency-penalty --presence-penalty --logit-bias --seed --max-tokens
           --stop --json -v -h'
    [serve]='-m --ctx --backend --device --threads --kv-type --isa --tune --exact --host --port --model-name --api-key --api-key-file --tls-cert
           --tls-key --cors --parallel --queue --timeout --memory --cache-dir -h'
    [top]='--host --port --api-key --api-key-file --interval --once -h'
    [inspect]='--plan --json -v -h'
    [tokenize]='-m --no-bos --no-special --json -v -h'
    [logits]='-m --ctx --backend --device --threads --kv-type --isa --tune --exact --tokens --top --no-bos --no-special --json -v -h'
    [bench]='-m --backend --device --threads --kv-type --isa --tune --exact -p -n -d -b -r --check --csv --json -v -h'
    [compare]='--text --ctx --backend --device --threads --kv-type --isa --tune --exact --json -v -h'
    [synth]='--size --type --head-type --seed --force -h'
)
examples=$(grep -E '^  gemmule ' <<<"$overall")
for command in run chat serve top inspect tokenize logits bench compare synth; do
    works "$G" "$command" --help
    text=$out
    for option in ${options[$command]}; do
        check "help of $command has $option" out_matches "(^|[ $newline])${option}[, $newline]"
    done
    check "exit codes" out_matches "Exit status: .*(130 stopped by Ctrl-C|0 ended by a signal)"
    check "no line is too wide" same "$(awk 'length > 100' "$dir/.out")" ''
    # A server does not end by itself, and there is none to watch: tests/http has both.
    [[ $command =~ ^(serve|top)$ ]] || examples+=$newline$(sed -n '/^Examples/,/^$/s/^  //p' <<<"$text")
    works "$G" help "$command"
    check "both spellings" out_is "$text"
    works "$G" "$command" -h
    check "-h too" out_is "$text"
done

# The examples work as written, one after the other, in an empty folder.
mkdir "$dir/empty" "$dir/bin"
ln -s "$G" "$dir/bin/gemmule"
n=0
while IFS= read -r example; do
    [[ $example != *270m* ]] || continue # 300 MB
    n=$((n + 1))
    works env PATH="$dir/bin:$PATH" bash -c "cd '$dir/empty' && $example" </dev/null
done <<<"$examples"
check "examples were found" test "$n" -ge 10

refused 2 'there is no command; to begin: gemmule chat' "$G"
refused 2 'there is no command frobnicate (see gemmule --help)' "$G" frobnicate
refused 2 'there is no command frobnicate' "$G" help frobnicate
refused 2 'unknown option --frobnicate' "$G" --frobnicate

# What may have been meant: slips of the finger, and other programs' names.
refused 2 'there is no command sreve; did you mean gemmule serve? (see gemmule --help)' "$G" sreve
refused 2 'there is no command quantize; did you mean gemmule convert?' "$G" help quantize
refused 2 'unknown option --verson; did you mean gemmule --version?' "$G" --verson
refused 2 'unknown option --modle; did you mean --model? (see gemmule run --help)' "$G" run --modle x
refused 2 'unknown option --temperature=1; did you mean --temp?' "$G" run --temperature=1 x
refused 2 'unknown option -n; did you mean --max-tokens?' "$G" run -n 5 x
refused 2 'unknown option -c; did you mean --ctx?' "$G" chat -c 5
refused 2 'unknown option -t; did you mean --threads?' "$G" serve -t 5
refused 2 'unknown option -p; PROMPT needs none before it' "$G" run -p hello
refused 2 'unknown option -p; TEXT needs none before it' "$G" tokenize -p hello
refused 2 'unknown option --ctx (see' "$G" bench --ctx 5
refused 2 "unknown option --$(printf 'x%.0s' {1..200} | cut -c1-78) (see" "$G" run "--$(printf 'x%.0s' {1..200})"

# Every command knows what it does not know, and ends no line in a blank.
every=$(sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' <<<"$overall" | grep -v '^help$')
check "commands were found" test "$(wc -l <<<"$every")" -ge 14
for command in $every; do
    refused 2 "$command: unknown option --frob (see gemmule $command --help)" "$G" "$command" --frob
    works "$G" "$command" --help
    check "no line ends in a blank" same "$(grep -c ' $' "$dir/.out")" 0
done

refused 2 'run: unknown option --foo (see gemmule run --help)' "$G" run --foo
refused 2 'unknown option -x' "$G" run -x
refused 2 'unknown option -vx' "$G" run -vx -m "$tiny" hi
refused 2 '--json takes no value' "$G" run --json=yes -m "$tiny" hi
refused 2 '--temp needs a value: X' "$G" run -m "$tiny" hi --temp
refused 2 '2 words are given, expected 1: [FILE]' "$G" inspect a b
refused 2 'synth: OUT.gguf is missing' "$G" synth
refused 2 'convert: SOURCE OUT.gguf are missing' "$G" convert
for command in serve bench chat; do
    refused 2 "$command: there is a word, x.gguf; " "$G" $command x.gguf
    check "where a model goes" err_has 'model '
    check "behind -m" err_has 'behind -m'
done
refused 2 '--backend is abacus, expected one of auto, ' "$G" run -m "$tiny" --backend abacus hi
refused 2 '--backend is abacus' "$G" logits -m "$tiny" --backend abacus hi
for command in run chat serve logits bench; do
    refused 2 "$command: --tune is empty, expected auto, off or a file" "$G" $command --tune=
    refused 2 "$command: --device is empty, expected a number or a part of a name" \
        "$G" $command --device ''
    refused 1 "on: cannot be opened: No such file or directory; --tune expects auto, off or a file" \
        "$G" $command --tune on
done
refused 2 'tune: --device is empty' "$G" tune --device ''
refused 2 'selftest: --device is empty' "$G" selftest --device ''
for command in run logits; do
    for bad in q4_0 f3 f32, ', f16' ''; do
        refused 2 "--kv-type is $bad, expected one of f32, f16, q8_0" \
            "$G" $command -m "$tiny" "--kv-type=$bad" hi
    done
    works "$G" $command -m "$tiny" --kv-type Q8_0 --isa C --threads 1 hi
    refused 2 '--isa is sse, expected one of c, avx2, avx512' "$G" $command -m "$tiny" --isa sse hi
    n=$(getconf _NPROCESSORS_ONLN)
    refused 2 "--threads is $((4 * n + 1)), expected at most $((4 * n)), four for each of the machine's $n" \
        "$G" $command -m "$tiny" --threads $((4 * n + 1)) hi
    refused 2 '--threads is 0, expected a whole number from 1 to 1024' \
        "$G" $command -m "$tiny" --threads 0 hi
done

whole='expected a whole number from'
for bad in abc '' -1 +1 1x ' 1' 1.5 0x10 99999999999999999999; do
    refused 2 "--top-k is $bad, $whole 0 to 4294967295" "$G" run -m "$tiny" "--top-k=$bad" hi
done
refused 2 "--top-k is 4294967296, $whole 0 to" "$G" run -m "$tiny" --top-k 4294967296 hi
refused 2 "--max-tokens is 0, $whole 1 to" "$G" run -m "$tiny" --max-tokens 0 hi
refused 2 "--ctx is 1, $whole 2 to" "$G" run -m "$tiny" --ctx 1 hi
refused 2 "--top is 0, $whole 1 to" "$G" logits -m "$tiny" --top 0 hi
refused 2 "--seed is 9223372036854775808, $whole 0 to" "$G" run -m "$tiny" --seed 9223372036854775808 hi
for bad in abc '' nan inf -0.1 101 1x ' 1'; do
    refused 2 "--temp is $bad, expected a number from 0 to 100" "$G" run -m "$tiny" "--temp=$bad" hi
done
refused 2 '--top-p is 1.1, expected a number from 0 to 1' "$G" run -m "$tiny" --top-p 1.1 hi
refused 2 '--min-p is -1, expected a number from 0 to 1' "$G" run -m "$tiny" --min-p -1 hi
refused 2 '--repeat-penalty is 0, expected' "$G" run -m "$tiny" --repeat-penalty 0 hi
refused 2 '--presence-penalty is 1000, expected' "$G" run -m "$tiny" --presence-penalty 1000 hi
for bad in 5 =5 x=5 5= 5=x -5=1 5=1001; do
    refused 2 "--logit-bias is $bad, expected a token id" "$G" run -m "$tiny" --logit-bias "$bad" hi
done
for bad in '' ',' '1,' ',1' '1,,2' '1,x' -1 2147483648; do
    refused 2 "--tokens is $bad, expected token ids" "$G" logits -m "$tiny" "--tokens=$bad"
done
refused 2 '--tokens is the prompt' "$G" logits -m "$tiny" --tokens 2,3 hello
refused 2 '--system is chat and --raw is not' "$G" run -m "$tiny" --raw --system x hi
refused 2 '--no-bos and --no-special go with --raw' "$G" run -m "$tiny" --no-bos hi
refused 2 '--stop is empty' "$G" run -m "$tiny" --stop '' hi
refused 2 'the prompt is empty' "$G" run -m "$tiny"

# At a terminal, a missing prompt is a mistake and not a wait.
if command -v script >/dev/null; then
    for command in run tokenize logits; do
        try timeout 20 script -qec "'$G' $command -m '$tiny' </dev/tty" /dev/null
        check "no prompt at a terminal" rc_is 2
        check "says so" out_has 'there is no prompt'
    done
    try script -qec "'$G' synth --size 270m --type q2_k '$dir/large.gguf'" /dev/null
    check "progress at a terminal" out_matches '\[=* *\] +[0-9]+% [0-9.]+ [a-zA-Z]+ [0-9.]+ [a-zA-Z]+/s'
    check "is erased" out_has $'\r\033[K'
else
    echo "skip: script(1) is not here, so nothing was tried at a terminal"
fi
finish
