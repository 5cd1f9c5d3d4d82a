/* SPDX-License-Identifier: MIT */
/* Groups: runs of neighbouring ops that a backend may lower as one. The table is
 * read from the top, so longer patterns stand before their beginnings; an op that
 * begins no pattern is a group of its own. A layer of Gemma 3 comes to five groups
 * (qkv, rope-store-attend, proj-norm-add-norm, gate-up-gelu, proj-norm-add-norm),
 * which is what keeps a GPU's decode within six dispatches a layer. */

#include "base/mem.h"
#include "plan/plan.h"

#define PATTERN_MAX 4

typedef struct pattern {
    const char *name;
    bool siblings; /* the ops read the same value; else each is read by a later one */
    gm_opkind kinds[PATTERN_MAX];
} pattern;

static const pattern table[] = {
    {"qkv", true, {GM_OP_MATMUL, GM_OP_MATMUL, GM_OP_MATMUL}},
    {"rope-store-attend", false, {GM_OP_NORM_ROPE, GM_OP_NORM_ROPE, GM_OP_CACHE, GM_OP_ATTEND}},
    {"proj-norm-add-norm", false, {GM_OP_MATMUL, GM_OP_NORM_ADD, GM_OP_NORM}},
    {"proj-norm-add", false, {GM_OP_MATMUL, GM_OP_NORM_ADD}},
    {"gate-up-gelu", false, {GM_OP_GATE_UP_GELU}},
    {"embed-norm", false, {GM_OP_INPUT_ROWS, GM_OP_NORM}},
    {"pick-norm", false, {GM_OP_PICK_ROWS, GM_OP_NORM}},
    {"head-cap-draw", false, {GM_OP_MATMUL, GM_OP_SOFTCAP, GM_OP_DRAW}},
    {"head-draw", false, {GM_OP_MATMUL, GM_OP_DRAW}},
};

static uint32_t pattern_len(const pattern *t)
{
    uint32_t n = 0;
    while (n < PATTERN_MAX && t->kinds[n])
        n++;
    return n;
}

/* Whether a later op of the pattern works on what op i made. NORM_ADD works on what it norms; its
 * other side comes from anywhere. */
static bool read_by_later(const gm_op *ops, uint32_t i, uint32_t n)
{
    for (uint32_t j = i + 1; j < n; j++) {
        const bool first = ops[j].in[0] == ops[i].out && ops[j].kind != GM_OP_NORM_ADD;
        if (first || ops[j].in[1] == ops[i].out) return true;
    }
    return false;
}

/* How many ops the pattern takes at ops[0..left), 0 when it does not fit there. */
static uint32_t match(const pattern *t, const gm_op *ops, size_t left)
{
    const uint32_t n = pattern_len(t);
    if (n > left) return 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ops[i].kind != t->kinds[i]) return 0;
        if (t->siblings ? ops[i].in[0] != ops[0].in[0] : i + 1 < n && !read_by_later(ops, i, n))
            return 0;
    }
    return n;
}

static gm_group group_at(const gm_plan *p, uint32_t first)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const uint32_t n = match(&table[i], p->ops + first, p->n_ops - first);
        if (n) return (gm_group){table[i].name, first, n};
    }
    return (gm_group){gm_opkind_name(p->ops[first].kind), first, 1};
}

gm_status gm_plan_fuse(gm_plan *p, gm_err *err)
{
    for (uint32_t i = 0; i < p->n_ops;) {
        GM_TRY(gm_mem_grow(&p->groups, &p->cap_groups, p->n_groups + 1, sizeof *p->groups, "a plan",
                           err));
        const gm_group group = group_at(p, i);
        p->groups[p->n_groups++] = group;
        i += group.n_ops;
    }
    return GM_OK;
}
