# SPDX-License-Identifier: MIT
#
# awk -F '\t' -f tests/vk/rdna3.awk GATES TABLE    judges the table that tests/vk/rdna3.c prints
function fail(why) { complaints = complaints variant ": " why "\n"; met = 0 }
function at_most(column, limit) {
    if (limit != "-" && $(at[column]) > limit + 0)
        fail(column " is " $(at[column]) ", at most " limit " is allowed")
}
function at_least(column, limit) {
    if (limit != "-" && $(at[column]) < limit + 0)
        fail(column " is " $(at[column]) ", at least " limit " is expected")
}
# The row of the gates for a module or one variant of it, split into gate[1..8].
function gate_of(module, variant, i, glob) {
    for (i = 1; i <= n_gates; i++) {
        split(rows[i], gate, /[ \t]+/)
        glob = gate[1]
        gsub(/\./, "\\.", glob)
        gsub(/\*/, ".*", glob)
        if (module ~ "^" glob "$" || variant ~ "^" glob "$") return
    }
    fail("no row of the gates fits"); split("* - - - - - - -", gate, " ")
}

FILENAME == ARGV[1] { if ($0 !~ /^#/ && NF) rows[++n_gates] = $0; next }
FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; n_columns = NF }
{
    for (i = 2; i <= NF; i++) line[FNR] = line[FNR] sprintf(" %8s", $i)
    name[FNR] = $1
    if (length($1) > widest) widest = length($1)
    lines = FNR
}
FNR == 1 { next }
{
    variant = $1
    met = 1
    module = $1
    sub(/ .*/, "", module)
    gate_of(module, variant)
    if (NF < n_columns) {
        fail("the driver refuses it")
    } else {
        at_most("spills", 0); at_most("scratch", 0)
        at_least("waves", gate[2]); at_most("lds", gate[3]); at_most("code", gate[4])
        at_most("narrow", gate[5]); at_most("drains", gate[6])
        at_least("dot4", gate[7]); at_least("wmma", gate[8])
    }
    good += met
    failed += !met

    # Decoding one sequence, Gemma 3 27B in Q4_0 with a Q6_K head: 27.01e9 weights, 15.56e9 bytes a
    # token. A dot4 takes four weights; 12 units of 2 SIMDs at 2.7 GHz start one VALU instruction of
    # 32 lanes a cycle each; 310 dispatches of 0.9 us; memory streams at its full speed meanwhile.
    if ($1 ~ /^matmul\.q4_0 .* NC=1 .* AFTER=0 / && $(at["ldot4"]) > 0) {
        turns = 27.01e9 / (4 * $(at["ldot4"]) * $(at["wave"]))
        alu = turns * $(at["valu"]) * ($(at["wave"]) / 32) / (24 * 2.7e9)
        model[++n_model] = sprintf("%-*s %8.1f ms", 48, $1, alu * 1000)
        split("73 89.6", rate, " ")
        for (r = 1; r <= 2; r++) {
            memory = 15.56 / rate[r]
            model[n_model] = model[n_model] sprintf("   %5.2f of %5.2f", \
                1 / ((memory > alu ? memory : alu) + 310 * 0.9e-6), 1 / memory)
        }
    }
}
END {
    for (i = 1; i <= lines; i++) printf "%-*s%s\n", widest, name[i], line[i]
    printf "\n%s", complaints
    if (n_model) {
        print "MODELLED, not measured: decode, Gemma 3 27B Q4_0 on a 780M, tok/s of the memory roof"
        printf "%-48s %11s   %s   %s\n", "", "VALU time", "at 73 GB/s    ", "at 89.6 GB/s"
        for (i = 1; i <= n_model; i++) print model[i]
    } else {
        print "no decode model: no matmul.q4_0 of one column with dot4 in its loop"
    }
    print good + 0 " passed, " failed + 0 " failed"
    exit failed > 0 || !good
}
