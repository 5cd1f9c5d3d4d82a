/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/place.h"
#include "gemmule_tools.h"

gm_tune_opts gm_tune_opts_default(void)
{
    return (gm_tune_opts){.size = sizeof(gm_tune_opts), .engine = gm_engine_opts_default()};
}

/* Counts what it hands on. */
typedef struct teller {
    const gm_tune_opts *opts;
    gm_tune_result *out;
} teller;

static int tell_row(void *ctx, const gm_tune_row *row)
{
    const teller *const t = ctx;
    t->out->n++;
    t->out->n_changed += row->tries[row->chosen].us < row->tries[0].us;
    return t->opts->row ? t->opts->row(t->opts->row_ctx, row) : 0;
}

static void take_device(const gm_runner *r, gm_tune_result *out)
{
    gm_backend_facts facts;
    r->ops->describe(r->be, &facts);
    snprintf(out->device, sizeof out->device, "%s", facts.device ? facts.device : "");
}

static gm_status try_model(const gm_model *m, const gm_engine_opts *e, const gm_tune_how *how,
                           gm_tune_result *out, gm_err *err)
{
    gm_place place = {0};
    const gm_status status = gm_place_init(&place, m, e, &(gm_place_cfg){.tune = how}, err);
    if (place.runner.be) take_device(&place.runner, out);
    gm_place_deinit(&place);
    return status;
}

/* What is kept of a device, without a model. */
static gm_status show(const gm_engine_opts *e, gm_tune_how how, gm_tune_result *out, gm_err *err)
{
    const gm_runner_cfg cfg = {
        .backend = e->backend,
        .be = {.n_threads = e->n_threads,
               .device = e->device,
               .dir = e->device_dir,
               .note = {e->verbose ? e->note : NULL, e->note_ctx}},
    };
    gm_runner r = {0};
    how.show = true;
    gm_status status = gm_runner_open(&r, &cfg, err);
    if (status == GM_OK) take_device(&r, out);
    if (status == GM_OK) status = r.ops->tune(r.be, NULL, &how, err);
    gm_runner_deinit(&r);
    return status;
}

gm_status gm_tune_run(const gm_model *m, const gm_tune_opts *opts, gm_tune_result *out, gm_err *err)
{
    gm_tune_opts o = gm_tune_opts_default();
    memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    gm_tune_result full = {.size = out->size};
    teller t = {&o, &full};
    const gm_tune_how how = {.seconds = o.seconds ? o.seconds : (double)INFINITY,
                             .max_ways = o.max_ways,
                             .again = true,
                             .forget = o.forget,
                             .note = {o.engine.note, o.engine.note_ctx},
                             .row = tell_row,
                             .ctx = &t};
    if (!o.engine.backend || strcmp(o.engine.backend, "auto") == 0) o.engine.backend = "vulkan";
    const gm_status status =
        m ? try_model(m, &o.engine, &how, &full, err) : show(&o.engine, how, &full, err);
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full); /* up to there */
    return status;
}
