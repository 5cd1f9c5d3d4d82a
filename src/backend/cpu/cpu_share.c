/* SPDX-License-Identifier: MIT */
/* Which phases are worth a crew. Sharing a phase costs a meeting before it and one
 * after: a microsecond among cores that are free, and a turn of the scheduler where
 * another process has one of them. Phases smaller than that pays for are worker 0's
 * alone, and between two such phases nobody meets; a step that has only such phases
 * wakes nobody. The decision counts work and measures no time, and changes no result. */

#include "backend/cpu/cpu.h"

/* Multiplications that one core does in two or three microseconds while it reads weights from
 * memory (PERF.md, attempt 9). */
#define WORTH_SHARING (1u << 15)
/* An element that passes through a norm, a rotation or a draw takes as long as so many. */
#define ROW_ELEMENT 16u

/* Positions that the step's rows see together, in each class. */
static void count_cells(const gm_step *s, uint64_t cells[GM_CLASSES])
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        cells[c] = 0;
        for (uint32_t i = 0; i < s->n_rows; i++) {
            const gm_step_row *const r = &gm_step_rows(s)[i];
            cells[c] += r->last[c] - r->first[c] + 1;
        }
    }
}

static uint64_t work_of(const gm_exec *ex, const gm_phase *ph, const gm_op *op, uint64_t rows,
                        const uint64_t cells[GM_CLASSES])
{
    const gm_valinfo *const vals = ex->plan->vals;
    const uint64_t in = vals[op->in[0]].cols, out = op->out ? vals[op->out].cols : in;
    switch (ph->kind) {
    case GM_PHASE_PRODUCTS: return (op->kind == GM_OP_GATE_UP_GELU ? 2 : 1) * rows * in * out;
    case GM_PHASE_ATTEND: return 2ull * cells[op->attn.class] * op->attn.n_head * op->attn.head_dim;
    case GM_PHASE_ROWS: break;
    }
    return ROW_ELEMENT * rows * (in > out ? in : out);
}

static bool is_alone(const gm_exec *ex, const gm_phase *ph, const uint64_t cells[GM_CLASSES])
{
    const uint32_t rows = ph->rows == GM_ROWS_ALL ? ex->step->n_rows : ex->step->n_outs;
    if (ph->kind == GM_PHASE_ROWS && rows <= 1) return true; /* a row is one task */
    uint64_t work = 0;
    for (uint32_t i = 0; i < ph->n_ops; i++)
        work += work_of(ex, ph, ph->op[i], rows, cells);
    return work < WORTH_SHARING;
}

void gm_cpu_share(gm_exec *ex)
{
    uint64_t cells[GM_CLASSES];
    count_cells(ex->step, cells);
    ex->shared = false;
    for (size_t i = 0; i < ex->n_phases; i++) {
        ex->alone[i] = is_alone(ex, &ex->phases[i], cells);
        ex->shared = ex->shared || !ex->alone[i];
    }
}
