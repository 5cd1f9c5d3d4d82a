/* SPDX-License-Identifier: MIT */
#include "server/metrics.h"

#include <inttypes.h>

#include "base/clock.h"
#include "monitor/gpu.h"
#include "server/generation.h"
#include "server/state.h"

/* Upper bounds of the buckets in seconds: from a fast token to a long answer. */
static const double BOUNDS[GM_HISTOGRAM_BOUNDS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
};

/* ---- counting ---------------------------------------------------------------------------- */

static void observe(gm_histogram *h, double seconds)
{
    uint32_t i = 0;
    while (i < GM_HISTOGRAM_BOUNDS && seconds > BOUNDS[i])
        i++;
    atomic_fetch_add(&h->buckets[i], 1);
    atomic_fetch_add(&h->sum_us, (uint64_t)(seconds > 0 ? seconds * 1e6 : 0));
}

void gm_metrics_token(gm_metrics *m, const gm_event *ev, double wait_s, double last_s)
{
    if (ev->n_answer > 1) {
        observe(&m->next_token, ev->decode_s - last_s);
        return;
    }
    observe(&m->first_token, wait_s + ev->prefill_s);
    observe(&m->queue, ev->queue_s);
}

void gm_metrics_exchange(gm_metrics *m, const gm_exchange *x, double seconds)
{
    const unsigned hundreds = x->status / 100;
    if (hundreds == 5 && !x->tally.error[0]) return; /* /health, which says that one must wait */
    atomic_fetch_add(&m->by_status[hundreds < 6 ? hundreds : 0], 1);
    if (x->status == MHD_HTTP_TOO_MANY_REQUESTS) atomic_fetch_add(&m->n_full, 1);
    if (!x->gen) return;
    observe(&m->request, seconds);
    if (atomic_load(&x->gone)) atomic_fetch_add(&m->n_cancelled, 1);
    if (atomic_load(&x->late)) atomic_fetch_add(&m->n_late, 1);
}

/* ---- showing ----------------------------------------------------------------------------- */

static void put_head(gm_strbuf *out, const char *name, const char *type, const char *help)
{
    gm_strbuf_printf(out, "# HELP gemmule_%s %s\n# TYPE gemmule_%s %s\n", name, help, name, type);
}

static void put_histogram(gm_strbuf *out, const char *name, const char *help, gm_histogram *h)
{
    put_head(out, name, "histogram", help);
    uint64_t n = 0;
    for (uint32_t i = 0; i < GM_HISTOGRAM_BOUNDS; i++) {
        n += atomic_load(&h->buckets[i]);
        gm_strbuf_printf(out, "gemmule_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, BOUNDS[i], n);
    }
    n += atomic_load(&h->buckets[GM_HISTOGRAM_BOUNDS]);
    gm_strbuf_printf(out,
                     "gemmule_%s_bucket{le=\"+Inf\"} %" PRIu64 "\ngemmule_%s_sum %.6f\n"
                     "gemmule_%s_count %" PRIu64 "\n",
                     name, n, name, 1e-6 * (double)atomic_load(&h->sum_us), name, n);
}

static void put_count(gm_strbuf *out, const char *name, const char *help, uint64_t value)
{
    put_head(out, name, "counter", help);
    gm_strbuf_printf(out, "gemmule_%s %" PRIu64 "\n", name, value);
}

static void put_gauge(gm_strbuf *out, const char *name, const char *help, double value)
{
    put_head(out, name, "gauge", help);
    gm_strbuf_printf(out, "gemmule_%s %.10g\n", name, value);
}

static void put_batches(gm_strbuf *out, const gm_engine_stats *e)
{
    put_head(out, "batch_size", "histogram", "sequences served by a step of the engine");
    uint64_t n = 0;
    for (uint32_t i = 0; i < GM_BATCH_SIZES; i++) {
        n += e->batch[i];
        gm_strbuf_printf(out, "gemmule_batch_size_bucket{le=\"%u\"} %" PRIu64 "\n", 1u << i, n);
    }
    gm_strbuf_printf(out,
                     "gemmule_batch_size_bucket{le=\"+Inf\"} %" PRIu64
                     "\ngemmule_batch_size_sum %" PRIu64 "\ngemmule_batch_size_count %" PRIu64 "\n",
                     n, e->n_sequences, n);
}

static void put_engine(gm_engine *engine, gm_strbuf *out)
{
    gm_engine_stats e = {.size = sizeof e};
    gm_engine_stat(engine, &e);
    put_batches(out, &e);
    put_gauge(out, "slots", "requests that can run at once", e.n_slots);
    put_gauge(out, "requests_running", "requests that run", e.n_running);
    put_gauge(out, "requests_parked", "requests whose reader is behind", e.n_parked);
    put_gauge(out, "requests_queued", "requests that wait for a slot", e.n_queued);
    put_count(out, "prompt_tokens_total", "tokens of prompts computed", e.n_prompt);
    put_count(out, "cached_tokens_total", "tokens of prompts taken from the cache", e.n_cached);
    put_count(out, "completion_tokens_total", "tokens drawn", e.n_answer);
    put_count(out, "cache_lookups_total", "prompts looked up in the cache", e.n_lookups);
    put_count(out, "cache_hits_total", "prompts whose beginning was there", e.n_hits);
    put_count(out, "cache_evictions_total", "beginnings that had to go", e.n_evicted);
    put_gauge(out, "cache_entries", "beginnings kept of finished requests", e.n_kept);
    put_gauge(out, "kv_bytes", "size of the KV cache", (double)e.kv_size);
    static const char *const classes[] = {"global", "local"};
    put_head(out, "kv_pages", "gauge", "pages of the KV cache");
    for (int c = 0; c < 2; c++)
        gm_strbuf_printf(out, "gemmule_kv_pages{class=\"%s\"} %u\n", classes[c], e.pages[c]);
    put_head(out, "kv_pages_used", "gauge", "pages of the KV cache that hold something");
    for (int c = 0; c < 2; c++)
        gm_strbuf_printf(out, "gemmule_kv_pages_used{class=\"%s\"} %u\n", classes[c],
                         e.pages_used[c]);
}

/* One reading of every GPU that has it. */
typedef struct reading {
    const char *name, *help;
    size_t offset; /* in gm_gpu */
} reading;

static const reading READINGS[] = {
    {"gpu_busy_ratio", "share of the time that the GPU worked", offsetof(gm_gpu, busy)},
    {"gpu_vram_used_bytes", "memory of its own in use", offsetof(gm_gpu, vram_used)},
    {"gpu_vram_total_bytes", "memory of its own", offsetof(gm_gpu, vram_total)},
    {"gpu_gtt_used_bytes", "memory of the host in use", offsetof(gm_gpu, gtt_used)},
    {"gpu_gtt_total_bytes", "memory of the host that it may use", offsetof(gm_gpu, gtt_total)},
    {"gpu_temperature_celsius", "of the chip", offsetof(gm_gpu, temperature_c)},
    {"gpu_power_watts", "as hwmon has it", offsetof(gm_gpu, power_w)},
};

static void put_gpus(const char *root, gm_strbuf *out)
{
    gm_gpu gpus[GM_GPUS_MAX];
    const size_t n = gm_gpu_read(root ? root : "", gpus);
    for (size_t i = 0; n && i < sizeof READINGS / sizeof *READINGS; i++) {
        put_head(out, READINGS[i].name, "gauge", READINGS[i].help);
        for (size_t k = 0; k < n; k++) {
            double value;
            memcpy(&value, (const char *)&gpus[k] + READINGS[i].offset, sizeof value);
            if (value >= 0)
                gm_strbuf_printf(out, "gemmule_%s{gpu=\"%s\"} %.10g\n", READINGS[i].name,
                                 gpus[k].name, value);
        }
    }
}

void gm_metrics_render(gm_server *s, gm_strbuf *out)
{
    gm_metrics *const m = &s->metrics;
    put_gauge(out, "up_seconds", "time since the start", gm_clock_s() - s->start_s);
    put_gauge(out, "ready", "1 once the model is loaded", atomic_load(&s->ready));
    put_head(out, "http_requests_total", "counter",
             "requests answered, by status; without the 503 of /health");
    for (unsigned i = 2; i < 6; i++)
        gm_strbuf_printf(out, "gemmule_http_requests_total{status=\"%uxx\"} %" PRIu64 "\n", i,
                         atomic_load(&m->by_status[i]));
    put_gauge(out, "connections", "open connections", gm_watcher_links(&s->watcher));
    put_count(out, "queue_full_total", "requests refused because the queue was full",
              atomic_load(&m->n_full));
    put_count(out, "cancelled_total", "answers whose client went away",
              atomic_load(&m->n_cancelled));
    put_count(out, "timeouts_total", "answers that ran out of time", atomic_load(&m->n_late));
    put_histogram(out, "time_to_first_token_seconds", "from the request to its first token",
                  &m->first_token);
    put_histogram(out, "inter_token_seconds", "from one token to the next", &m->next_token);
    put_histogram(out, "queue_seconds", "waiting for a slot", &m->queue);
    put_histogram(out, "request_seconds", "from the request to its last byte", &m->request);
    if (atomic_load(&s->ready)) put_engine(s->engine, out);
    put_gpus(s->opts.monitor_root, out);
}
