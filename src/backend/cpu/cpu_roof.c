/* SPDX-License-Identifier: MIT */
/* The roof: how fast all workers together read memory that no cache holds, by the
 * best of several ways of reading, and how many int8 operations they do in registers. */

#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/mem.h"

#define ROOF_AHEAD 65536     /* room behind it for lines that are asked for ahead */
#define ROOF_SPINS 20000000u /* about 70 ms of Zen 4 */

typedef struct roof_job {
    gm_backend *be;
    uint32_t way;
    bool fill;
    atomic_ullong sum; /* so that no reading is left out */
    double ops[64];
} roof_job;

static void read_share(void *arg, uint32_t worker)
{
    roof_job *const j = arg;
    const size_t share =
        (j->be->roof_size - ROOF_AHEAD) / gm_workers_n(j->be->workers) / 4096 * 4096;
    uint8_t *const from = j->be->roof + worker * share;
    if (j->fill)
        memset(from, 1, share);
    else
        atomic_fetch_add(&j->sum, j->be->k.read(from, share, j->way));
}

static void spin_share(void *arg, uint32_t worker)
{
    roof_job *const j = arg;
    j->ops[worker % 64] = j->be->k.spin(ROOF_SPINS);
}

gm_status gm_cpu_roof(gm_backend *be, uint64_t size, gm_roof *out, gm_err *err)
{
    *out = (gm_roof){0};
    roof_job job = {.be = be, .fill = true};
    if (!be->roof) {
        be->roof_size = size + ROOF_AHEAD;
        GM_TRY(gm_mem_alloc_huge(&be->roof, be->roof_size, "the roof", err));
        gm_workers_run(be->workers, read_share, &job);
    }
    job.fill = false;
    for (job.way = 0; job.way < GM_READ_WAYS; job.way++) {
        const double start = gm_clock_s();
        gm_workers_run(be->workers, read_share, &job);
        const double rate = (double)(be->roof_size - ROOF_AHEAD) / (gm_clock_s() - start);
        if (rate > out->read_bytes_s) out->read_bytes_s = rate;
    }
    const double start = gm_clock_s();
    gm_workers_run(be->workers, spin_share, &job);
    const double seconds = gm_clock_s() - start;
    for (uint32_t i = 0; i < gm_workers_n(be->workers) && i < 64; i++)
        out->int8_ops_s += job.ops[i] / seconds;
    return GM_OK;
}
