/* SPDX-License-Identifier: MIT */
/* Speed, end to end: every step here is the step that the engine makes, from token
 * ids to drawn tokens, without the engine's thread and events around it. Weights and
 * KV bytes are counted from the model's shapes, so that an impossible speed shows as
 * more bytes than the roof allows; the roof is measured between the repetitions,
 * because a machine's memory is not equally fast at all times.
 *
 * The first repetition is not counted. It brings weights and pages into memory, and
 * its last row of logits is what is hashed and checked, so that the hash does not
 * depend on how often the rest is repeated. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/place.h"
#include "gemmule_tools.h"

#define MAX_REPS        64
#define ROOF_SIZE       ((uint64_t)1 << 30)
#define WARM_S          2.0 /* an idle H200 runs at 345 MHz: docs/PERF.md, attempt 16 */
#define QUICK_ROOF_S    1.0
#define QUICK_ROOF_SIZE ((uint64_t)256 << 20) /* larger than any last cache of machines like ours */

/* A model on a backend with sequences whose tokens we choose. */
typedef struct bed {
    const gm_model *m;
    gm_place place;
    gm_arena arena;
    gm_kvtable *tables;                /* [batch] */
    gm_step *steps[GM_TICKETS], *step; /* step: the one that is filled next */
    gm_ticket tickets[GM_TICKETS];
    int32_t *ids;    /* [batch, n_ctx] */
    uint32_t *n_ids; /* [batch] known; decoding leaves all but the last in the cache */
    uint32_t batch;
    gm_result result;
    uint64_t n_steps, n_read;  /* handed over, and answered */
    double sent_s, answered_s; /* when the last was handed over; and answered, or 0          */
    double host_s;             /* from an answer to the next step handed over, all n_host of them */
    uint64_t n_host;
    double step_us; /* what the last step of one token each took */
} bed;

static gm_status bed_init(bed *b, const gm_model *m, const gm_engine_opts *o, gm_err *err)
{
    b->m = m;
    GM_TRY(gm_place_init(&b->place, m, o, &(gm_place_cfg){0}, err));
    b->batch = b->place.n_slots;
    for (int i = 0; i < GM_TICKETS; i++)
        GM_TRY(gm_place_step(&b->place, &b->steps[i], err));
    b->step = b->steps[0];
    GM_TRY(gm_arena_alloc(&b->arena, &b->tables, b->batch, sizeof *b->tables, "tables", err));
    GM_TRY(gm_arena_alloc(&b->arena, &b->n_ids, b->batch, sizeof *b->n_ids, "tokens", err));
    GM_TRY(gm_arena_alloc(&b->arena, &b->ids, (uint64_t)b->batch * b->place.n_ctx, sizeof *b->ids,
                          "tokens", err));
    for (uint32_t i = 0; i < b->batch; i++)
        GM_TRY(gm_kvtable_init(&b->tables[i], &b->place.pool, &b->arena, err));
    return GM_OK;
}

static void bed_deinit(bed *b)
{
    for (int i = 0; i < GM_TICKETS; i++)
        gm_step_free(b->steps[i]);
    gm_place_deinit(&b->place);
    gm_arena_deinit(&b->arena);
}

/* Begins a sequence anew. */
static void restart(bed *b, uint32_t slot)
{
    gm_kvpool_release(&b->place.pool, &b->tables[slot]);
    b->n_ids[slot] = 0;
}

/* Appends n tokens that nobody chose: the same in every run. */
static void append_tokens(bed *b, uint32_t slot, uint32_t n)
{
    const uint32_t n_vocab = gm_vocab_len(b->m->vocab);
    for (uint32_t i = 0; i < n; i++, b->n_ids[slot]++) {
        const uint32_t id = (b->n_ids[slot] * 7919u + slot * 104729u + 13u) % n_vocab;
        b->ids[(size_t)slot * b->place.n_ctx + b->n_ids[slot]] = (int32_t)id;
    }
}

/* Rows [first, first + n) of a slot, the last of them that of a token that is being drawn if it is not
 * known; of the last known one, or that, comes what is wanted. */
static bool put_rows(bed *b, uint32_t slot, uint32_t first, uint32_t n, uint32_t want)
{
    static const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    if (first == 0 && !gm_step_put_set(b->step, slot, &greedy, NULL, 0)) return false;
    if (!gm_kvpool_extend(&b->place.pool, &b->tables[slot], slot, first, n, b->step)) return false;
    const int32_t *const ids = b->ids + (size_t)slot * b->place.n_ctx + first;
    const bool known = first < b->n_ids[slot];
    if (!gm_place_put_rows(&b->place, b->step, slot, known ? ids : NULL, first, n)) return false;
    if (first + n < b->n_ids[slot]) return true;
    return gm_step_put_out(
        b->step, &(gm_step_out){.row = b->step->n_rows - 1, .want = want, .mask = GM_NO_MASK});
}

static gm_backend_facts facts_of(const bed *b)
{
    gm_backend_facts facts;
    b->place.runner.ops->describe(b->place.runner.be, &facts);
    return facts;
}

static gm_status hand_over(bed *b, gm_err *err)
{
    GM_TRY(gm_runner_submit(&b->place.runner, b->step, &b->tickets[b->n_steps % GM_TICKETS], err));
    b->sent_s = gm_clock_s();
    if (b->answered_s > 0) {
        b->host_s += b->sent_s - b->answered_s;
        b->n_host++;
    }
    b->step = b->steps[++b->n_steps % GM_TICKETS];
    return GM_OK;
}

/* Waits for the oldest step. */
static gm_status read_step(bed *b, gm_err *err)
{
    const gm_ticket t = b->tickets[b->n_read++ % GM_TICKETS];
    GM_TRY(gm_runner_collect(&b->place.runner, t, &b->result, err));
    b->answered_s = gm_clock_s();
    return GM_OK;
}

static gm_status run_step(bed *b, gm_err *err)
{
    GM_TRY(hand_over(b, err));
    return read_step(b, err);
}

static gm_status no_room(gm_err *err)
{
    return gm_fail(err, GM_E_ARG, 0, "bench: a step does not fit");
}

/* Reads tokens [first, all) of a slot in chunks. */
static gm_status feed(bed *b, uint32_t slot, uint32_t first, uint32_t want, gm_err *err)
{
    for (uint32_t n; first < b->n_ids[slot]; first += n) {
        const uint32_t left = b->n_ids[slot] - first;
        n = left < GM_RUNNER_ROWS ? left : GM_RUNNER_ROWS;
        gm_step_clear(b->step);
        if (!put_rows(b, slot, first, n, want)) return no_room(err);
        GM_TRY(run_step(b, err));
    }
    return GM_OK;
}

/* A step of one token for every sequence: behind the one under way, if there is one. */
static gm_status put_decode(bed *b, uint32_t want, gm_err *err)
{
    const uint32_t ahead = (uint32_t)(b->n_steps - b->n_read);
    gm_step_clear(b->step);
    for (uint32_t s = 0; s < b->batch; s++) {
        if (!put_rows(b, s, b->n_ids[s] - 1 + ahead, 1, want)) return no_room(err);
    }
    return GM_OK;
}

static gm_status read_tokens(bed *b, gm_err *err)
{
    const double start_s = b->answered_s > b->sent_s ? b->answered_s : b->sent_s;
    GM_TRY(read_step(b, err));
    b->step_us = 1e6 * (b->answered_s - start_s);
    for (uint32_t s = 0; s < b->batch; s++)
        b->ids[(size_t)s * b->place.n_ctx + b->n_ids[s]++] = b->result.out[s].token;
    return GM_OK;
}

/* n tokens for every sequence, as the engine has them made: a step that is short is handed over before
 * the one before it is read. `more` is wanted of the last. */
static gm_status decode(bed *b, uint32_t n, uint32_t more, gm_err *err)
{
    const bool ahead = b->step_us < b->place.runner.ahead_us;
    for (uint32_t i = 0; i < n; i++) {
        GM_TRY(put_decode(b, i + 1 < n ? GM_WANT_DRAW : GM_WANT_DRAW | more, err));
        GM_TRY(hand_over(b, err));
        if (!ahead || i > 0) GM_TRY(read_tokens(b, err));
    }
    return b->n_read < b->n_steps ? read_tokens(b, err) : GM_OK;
}

/* ---- what it takes --------------------------------------------------------------------- */

static double weight_bytes(const gm_plan *p)
{
    double bytes = 0;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        for (uint32_t k = 0; k < gm_op_products(op); k++)
            bytes += (double)p->weights.at[op->weight[k]].size;
    }
    return bytes;
}

double gm_model_step_size(const gm_model *m, const char *kv_type, uint32_t depth, uint32_t batch)
{
    const gm_config *const c = &m->config;
    const gm_qtype_info *const t = gm_qtype_find_name(gm_str_c(kv_type));
    if (!t) return 0;
    const uint32_t n_blocks = (c->head_dim + t->block_len - 1) / t->block_len;
    const double cell = 2.0 * c->n_kv_head * n_blocks * t->block_size;
    double cells = 0;
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const bool whole = c->layer_class[l] == GM_CLASS_GLOBAL || depth < c->window;
        cells += whole ? depth + 1.0 : c->window;
    }
    return weight_bytes(&m->plan) + batch * cells * cell;
}

double gm_model_prompt_ops(const gm_model *m, uint32_t n)
{
    const gm_plan *const p = &m->plan;
    double ops = 0;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        const double products = gm_op_products(op);
        if (products == 0) continue;
        const double rows = p->vals[op->out].rows == GM_ROWS_ALL ? n : 1;
        ops += 2 * products * rows * p->vals[op->out].cols * p->vals[op->in[0]].cols;
    }
    return ops;
}

/* ---- measuring ------------------------------------------------------------------------- */

typedef struct times {
    double seconds[MAX_REPS], read[MAX_REPS], ops[MAX_REPS];
} times;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, uint32_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What is there before the clock runs: sequences of `depth` tokens; behind them a prompt, or for each of
 * those that decode one token to go on from. */
static gm_status begin(bed *b, const gm_bench_opts *o, gm_err *err)
{
    for (uint32_t s = 0; s < (o->prompt ? 1 : b->batch); s++) {
        restart(b, s);
        append_tokens(b, s, o->depth);
        GM_TRY(feed(b, s, 0, GM_WANT_DRAW, err));
        append_tokens(b, s, o->prompt ? o->prompt : 1);
    }
    return GM_OK;
}

/* One repetition, and its seconds; `more` is wanted of its last step. */
static gm_status repeat(bed *b, const gm_bench_opts *o, uint32_t more, double *seconds, gm_err *err)
{
    const double start = gm_clock_s();
    if (o->prompt)
        GM_TRY(feed(b, 0, o->depth, GM_WANT_DRAW | more, err));
    else
        GM_TRY(decode(b, o->decode, more, err));
    *seconds = gm_clock_s() - start;
    return GM_OK;
}

/* The largest difference of a log-probability; infinite where one is not a number. */
static double worst_difference(const float *a, const float *b, uint32_t n)
{
    const double sum_a = gm_draw_logsum(a, n), sum_b = gm_draw_logsum(b, n);
    double worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double d = fabs(((double)a[i] - sum_a) - ((double)b[i] - sum_b));
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

/* Compares logits, the last row that the first sequence computed, with those of the same tokens on
 * ref-int8 with the same type of KV cache; those of a GPU with cpu's, which are ref-int8's and there
 * sooner. */
static gm_status check(const bed *b, const gm_bench_opts *o, const float *logits, double *worst,
                       gm_err *err)
{
    const gm_qtype_info *kv_type = NULL;
    GM_TRY(gm_place_kv_type(&o->engine, &kv_type, err));
    const gm_engine_opts opts = {.size = sizeof opts,
                                 .backend = facts_of(b).device ? "cpu" : "ref-int8",
                                 .n_threads = o->engine.n_threads,
                                 .n_ctx = b->place.n_ctx,
                                 .kv_type = kv_type->name};
    bed r = {0};
    gm_status status = bed_init(&r, b->m, &opts, err);
    if (status == GM_OK) {
        r.n_ids[0] = o->prompt ? b->n_ids[0] : b->n_ids[0] - 1;
        memcpy(r.ids, b->ids, r.n_ids[0] * sizeof *r.ids);
        status = feed(&r, 0, 0, GM_WANT_LOGITS, err);
    }
    if (status == GM_OK)
        *worst = worst_difference(logits, r.result.out[0].logits, gm_vocab_len(b->m->vocab));
    bed_deinit(&r);
    return status;
}

/* Prompts, one after the other, until the GPU's clock has risen. */
static gm_status raise_clock(bed *b, gm_bench_result *out, gm_err *err)
{
    const double start = gm_clock_s();
    const uint32_t room = b->place.n_ctx;
    if (!facts_of(b).is_gpu) return GM_OK;
    while (out->warm_s < WARM_S) {
        restart(b, 0);
        append_tokens(b, 0, room < GM_RUNNER_ROWS ? room : GM_RUNNER_ROWS);
        GM_TRY(feed(b, 0, 0, GM_WANT_DRAW, err));
        out->warm_s = gm_clock_s() - start;
    }
    restart(b, 0);
    return GM_OK;
}

/* The repetition that is not counted. */
static gm_status warm_up(bed *b, const gm_bench_opts *o, gm_bench_result *out, gm_err *err)
{
    double seconds;
    GM_TRY(begin(b, o, err));
    GM_TRY(repeat(b, o, GM_WANT_LOGITS, &seconds, err));
    const float *const logits = b->result.out[0].logits;
    out->hash = gm_draw_hash(logits, gm_vocab_len(b->m->vocab));
    return o->check ? check(b, o, logits, &out->check, err) : GM_OK;
}

static gm_status fill_result(const bed *b, const gm_bench_opts *o, times *t, gm_bench_result *out,
                             gm_err *err)
{
    const gm_qtype_info *kv_type = NULL;
    GM_TRY(gm_place_kv_type(&o->engine, &kv_type, err));
    const double mid = median(t->seconds, o->reps);
    const double tokens = o->prompt ? o->prompt : (double)o->decode * b->batch;
    const double depth = o->depth + o->decode / 2.0; /* of the middle step */
    out->tok_s = tokens / mid;
    out->spread = (t->seconds[o->reps - 1] - t->seconds[0]) / mid;
    if (o->prompt)
        out->gop_s = gm_model_prompt_ops(b->m, o->prompt) / mid * 1e-9;
    else
        out->gb_s = gm_model_step_size(b->m, kv_type->name, (uint32_t)depth, b->batch) * o->decode /
                    mid * 1e-9;
    out->roof_gb_s = median(t->read, o->reps) * 1e-9;
    out->roof_gop_s = median(t->ops, o->reps) * 1e-9;
    out->n_threads = facts_of(b).n_threads;
    out->load_gb_s = facts_of(b).load_bytes_s * 1e-9;
    out->load_times = facts_of(b).load_times;
    return GM_OK;
}

/* Adds what was done between two counts. */
static void add_counts(gm_device_counts *sum, const gm_device_counts *from,
                       const gm_device_counts *to)
{
    sum->allocs += to->allocs - from->allocs;
    sum->pipelines += to->pipelines - from->pipelines;
    sum->recordings += to->recordings - from->recordings;
    sum->submits += to->submits - from->submits;
    sum->dispatches += to->dispatches - from->dispatches;
    sum->barriers += to->barriers - from->barriers;
    sum->bytes_up += to->bytes_up - from->bytes_up;
    sum->bytes_down += to->bytes_down - from->bytes_down;
    memcpy(sum->held, to->held, sizeof sum->held);
}

static gm_status time_all(bed *b, const gm_bench_opts *o, gm_bench_result *out, gm_err *err)
{
    const gm_runner *const r = &b->place.runner;
    double host_s = 0;
    uint64_t n_host = 0;
    times t;
    GM_TRY(raise_clock(b, out, err));
    GM_TRY(warm_up(b, o, out, err));
    for (uint32_t i = 0; i < o->reps; i++) {
        gm_roof roof;
        GM_TRY(r->ops->roof(r->be, ROOF_SIZE, &roof, err));
        t.read[i] = roof.read_bytes_s;
        t.ops[i] = roof.int8_ops_s;
        out->up_gb_s = roof.up_bytes_s * 1e-9;
        GM_TRY(begin(b, o, err));
        const gm_backend_facts before = facts_of(b);
        const uint64_t n_steps = b->n_steps;
        b->answered_s = 0; /* what came before is no part of it */
        b->host_s = 0;
        b->n_host = 0;
        GM_TRY(repeat(b, o, 0, &t.seconds[i], err));
        const gm_backend_facts after = facts_of(b);
        add_counts(&out->device, &before.counts, &after.counts);
        out->n_steps += b->n_steps - n_steps;
        host_s += b->host_s;
        n_host += b->n_host;
    }
    if (n_host) out->host_us = 1e6 * host_s / (double)n_host;
    return fill_result(b, o, &t, out, err);
}

/* ---- kernels --------------------------------------------------------------------------- */

#define KERNELS 64 /* kinds of them */

static int by_time(const void *a, const void *b)
{
    const gm_kernel_row *const x = a, *const y = b;
    return (x->us < y->us) - (x->us > y->us);
}

/* Those of the first step that a repetition has. */
static gm_status tell_kernels(bed *b, const gm_bench_opts *o, gm_err *err)
{
    gm_kernel_row rows[KERNELS];
    uint32_t n = 0;
    const uint32_t chunk = o->prompt < GM_RUNNER_ROWS ? o->prompt : GM_RUNNER_ROWS;
    GM_TRY(begin(b, o, err));
    gm_step_clear(b->step);
    if (!o->prompt)
        GM_TRY(put_decode(b, GM_WANT_DRAW, err));
    else if (!put_rows(b, 0, o->depth, chunk, GM_WANT_DRAW))
        return no_room(err);
    GM_TRY(gm_runner_profile(&b->place.runner, b->step, rows, KERNELS, &n, err));
    qsort(rows, n, sizeof *rows, by_time);
    for (uint32_t i = 0; i < n; i++)
        o->kernel(o->kernel_ctx, &rows[i]);
    return GM_OK;
}

/* Before it is measured for minutes. */
static gm_status check_kernels(const bed *b, const gm_bench_opts *o, gm_err *err)
{
    const gm_backend_ops *const ops = b->place.runner.ops;
    if (!o->kernel || ops->profile != gm_backend_no_profile) return GM_OK;
    return gm_fail(err, GM_E_UNSUP, 0, "bench: the backend %s times no kernels, vulkan does",
                   ops->name);
}

/* ---- from outside ---------------------------------------------------------------------- */

gm_bench_opts gm_bench_opts_default(void)
{
    return (gm_bench_opts){.size = sizeof(gm_bench_opts),
                           .decode = 64,
                           .batch = 1,
                           .reps = 5,
                           .engine = gm_engine_opts_default()};
}

/* Checks the options, and makes them the engine's. */
static gm_status read_opts(gm_bench_opts *o, const gm_model *m, gm_err *err)
{
    if (o->reps == 0 || o->reps > MAX_REPS) {
        return gm_fail(err, GM_E_ARG, 0, "bench: %" PRIu32 " repetitions, expected 1 to %d",
                       o->reps, MAX_REPS);
    }
    if (o->prompt == 0 && o->decode == 0)
        return gm_fail(err, GM_E_ARG, 0, "bench: no prompt and no tokens to decode");
    if (o->batch == 0 || o->batch > GM_RUNNER_ROWS) {
        return gm_fail(err, GM_E_ARG, 0, "bench: %" PRIu32 " sequences, expected 1 to %u", o->batch,
                       GM_RUNNER_ROWS);
    }
    if (o->prompt && o->batch > 1) {
        return gm_fail(err, GM_E_ARG, 0,
                       "bench: a prompt for %" PRIu32 " sequences, expected one sequence",
                       o->batch);
    }
    const uint64_t n_ctx =
        o->depth + (o->prompt ? (uint64_t)o->prompt : 1 + (uint64_t)o->decode) + 1;
    if (n_ctx > m->config.n_ctx) {
        return gm_fail(err, GM_E_TOOBIG, 0,
                       "bench: this takes %" PRIu64
                       " positions, and the model was made for %" PRIu32,
                       n_ctx, m->config.n_ctx);
    }
    o->engine.n_slots = o->batch;
    o->engine.n_ctx = (uint32_t)n_ctx;
    return GM_OK;
}

gm_status gm_bench_run(const gm_model *m, const gm_bench_opts *opts, gm_bench_result *out,
                       gm_err *err)
{
    gm_bench_opts o = gm_bench_opts_default();
    memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    gm_bench_result full = {.size = out->size, .check = -1};
    GM_TRY(read_opts(&o, m, err));
    bed b = {0};
    gm_status status = bed_init(&b, m, &o.engine, err);
    if (status == GM_OK) status = check_kernels(&b, &o, err);
    if (status == GM_OK) status = time_all(&b, &o, &full, err);
    if (status == GM_OK && o.kernel) status = tell_kernels(&b, &o, err);
    bed_deinit(&b);
    if (status == GM_OK) memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return status;
}

/* The better of two: the first one finds memory that nobody has touched; on a GPU the best of a
 * second. */
static gm_status measure_roof(const gm_backend_ops *ops, gm_backend *be, bool is_gpu,
                              gm_backend_info *info, gm_err *err)
{
    const double end = gm_clock_s() + (is_gpu ? QUICK_ROOF_S : 0);
    for (int i = 0; i < 2 || gm_clock_s() < end; i++) {
        gm_roof roof;
        GM_TRY(ops->roof(be, QUICK_ROOF_SIZE, &roof, err));
        info->read_gb_s = fmax(info->read_gb_s, roof.read_bytes_s * 1e-9);
        info->int8_gop_s = fmax(info->int8_gop_s, roof.int8_ops_s * 1e-9);
    }
    return GM_OK;
}

gm_status gm_backend_describe(const gm_engine_opts *opts, uint32_t measure, gm_backend_info *info,
                              gm_err *err)
{
    gm_engine_opts o = gm_engine_opts_default();
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    const gm_qtype_info *kv_type = NULL;
    const gm_backend_ops *const ops = gm_backend_find(o.backend ? o.backend : "auto");
    if (!ops) return gm_fail(err, GM_E_ARG, 0, "backend: there is no %.40s", o.backend);
    GM_TRY(gm_place_kv_type(&o, &kv_type, err));
    gm_backend *be = NULL;
    const gm_backend_cfg cfg = {.n_threads = o.n_threads,
                                .isa = o.isa,
                                .device = o.device,
                                .dir = o.device_dir,
                                .exact = o.exact,
                                .untuned = o.untuned,
                                .note = {o.verbose ? o.note : NULL, o.note_ctx}};
    GM_TRY(ops->open(&be, &cfg, err));
    gm_backend_facts facts;
    ops->describe(be, &facts);
    gm_backend_info full = {.size = info->size,
                            .n_threads = facts.n_threads,
                            .name = ops->name,
                            .isa = facts.isa,
                            .kv_type = kv_type->name};
    snprintf(full.device, sizeof full.device, "%s", facts.device ? facts.device : "");
    snprintf(full.driver, sizeof full.driver, "%s", facts.driver ? facts.driver : "");
    const gm_status status = measure ? measure_roof(ops, be, facts.is_gpu, &full, err) : GM_OK;
    ops->close(be);
    if (status == GM_OK) memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
    return status;
}
