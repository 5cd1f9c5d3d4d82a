/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "plan/plan.h"

const char *gm_opkind_name(gm_opkind kind)
{
    static const char *const names[GM_OP_KINDS] = {
        [GM_OP_INPUT_ROWS] = "input_rows",
        [GM_OP_INPUT_GIVEN] = "input_given",
        [GM_OP_NORM] = "norm",
        [GM_OP_MATMUL] = "matmul",
        [GM_OP_NORM_ROPE] = "norm_rope",
        [GM_OP_CACHE] = "cache",
        [GM_OP_ATTEND] = "attend",
        [GM_OP_NORM_ADD] = "norm_add",
        [GM_OP_GATE_UP_GELU] = "gate_up_gelu",
        [GM_OP_PICK_ROWS] = "pick_rows",
        [GM_OP_SOFTCAP] = "softcap",
        [GM_OP_DRAW] = "draw",
        [GM_OP_OUTPUT] = "output",
    };
    return kind > 0 && kind < GM_OP_KINDS ? names[kind] : "unknown";
}

static void print_weight(const gm_plan *p, gm_wid w, gm_strbuf *out)
{
    const gm_tensor *const t = &p->weights.at[w];
    gm_strbuf_printf(out, " %s:%s", t->name, t->type->name);
}

/* The arguments that an op of this kind has. */
static void print_arguments(const gm_plan *p, const gm_op *op, gm_strbuf *out)
{
    for (int i = 0; i < 2 && op->in[i]; i++)
        gm_strbuf_printf(out, " %%%" PRIu32, op->in[i]);
    switch (op->kind) {
    case GM_OP_INPUT_ROWS:
    case GM_OP_MATMUL: print_weight(p, op->weight[0], out); break;
    case GM_OP_GATE_UP_GELU:
        print_weight(p, op->weight[0], out);
        print_weight(p, op->weight[1], out);
        break;
    case GM_OP_NORM:
    case GM_OP_NORM_ADD: print_weight(p, op->norm.weight, out); break;
    case GM_OP_NORM_ROPE:
        print_weight(p, op->norm.weight, out);
        gm_strbuf_printf(out, " theta %g / %g", (double)op->rope.theta, (double)op->rope.factor);
        break;
    case GM_OP_CACHE:
    case GM_OP_ATTEND:
        gm_strbuf_printf(out, " layer %" PRIu32 " %s", op->layer,
                         op->attn.class == GM_CLASS_LOCAL ? "local" : "global");
        break;
    default: break;
    }
    if (op->num.act[0] != GM_ACT_F32) gm_strbuf_put(out, GM_STR(" int8"));
    if (op->num.act[0] == GM_ACT_INT8_TWICE) gm_strbuf_put(out, GM_STR(" twice"));
}

void gm_plan_print(const gm_plan *p, gm_strbuf *out)
{
    for (size_t g = 0; g < p->n_groups; g++) {
        const gm_group *const group = &p->groups[g];
        gm_strbuf_printf(out, "%s\n", group->name);
        for (uint32_t i = 0; i < group->n_ops; i++) {
            const gm_op *const op = &p->ops[group->op_first + i];
            gm_strbuf_put(out, GM_STR("    "));
            if (op->out) {
                gm_strbuf_printf(out, "%%%" PRIu32 " [%s, %" PRIu32 "] = ", op->out,
                                 p->vals[op->out].rows == GM_ROWS_ALL ? "n" : "out",
                                 p->vals[op->out].cols);
            }
            gm_strbuf_printf(out, "%s", gm_opkind_name(op->kind));
            print_arguments(p, op, out);
            gm_strbuf_putc(out, '\n');
        }
    }
}
