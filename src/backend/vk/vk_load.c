/* SPDX-License-Identifier: MIT */
/* The weights' way to the device. Tensors are put into few large buffers, because drivers limit both
 * the number of allocations and the size of one. Every core lays rows out, straight into the device's
 * memory where it is mapped, else into a staging buffer: a ring of parts, of which the device fetches
 * some while others are filled. A part takes rows of as many tensors as it has room for.
 *
 * What goes where is settled first: pieces, which are rows of one tensor in one part, and their tasks.
 * Then every worker takes tasks in their order, until there are none:
 *
 *     wait until the task's part is free; lay out; the last of a part: submit it
 *
 * All of them never meet. A bus of 40 GB/s takes a part in 0.4 ms, less than it costs to
 * stop 16 workers and to wake them again (docs/PERF.md, attempt 52). No worker waits for ever: a part
 * is free once the one before it in its place was fetched, whose tasks were taken earlier, so whoever
 * has the earliest task that is not finished waits for nobody but the device. Parts are submitted as
 * they are finished, in whatever order: each is copied between places that are its own, and is waited
 * for by the value that the timeline has after its own submit.
 *
 * Rows are taken from the file's map as they are met. Asking the system for a task's pages first, or
 * reading them from the file, takes a lock or a copy for every page, and longer than the faults,
 * each of which maps sixteen pages that are in memory (attempt 53).
 *
 * A core lays out 4 to 8 GB/s of the usual formats (attempt 53), so a bus of 40 needs eight of them.
 * Larger parts would fall out of the processor's cache before they are fetched, and the system takes
 * 0.3 ms to give a MiB of the stage. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/clock.h"
#include "base/mem.h"

#define BUFFER_SIZE (1ull << 30) /* of weights, where the device gives that much at once */
#define PARTS       4
#define PART_SIZE   (16ull << 20)
#define ALIGN       256

gm_status gm_vk_size_of(const gm_backend *be, const gm_tensors *t, uint64_t *bytes, gm_err *err)
{
    (void)be;
    *bytes = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        gm_vk_planes p;
        GM_TRY(gm_vk_planes_of(&t->at[i], &p, err));
        *bytes += (p.size + ALIGN - 1) / ALIGN * ALIGN;
    }
    return GM_OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct place {
    size_t buf;
    uint64_t off;
} place;

/* Puts tensor after tensor into buffers of up to BUFFER_SIZE; sizes[] is what each then holds. */
static gm_status find_places(const gm_wset *w, place *at, uint64_t *sizes, size_t *n, gm_err *err)
{
    const uint64_t max = w->be->dev.max_alloc < BUFFER_SIZE ? w->be->dev.max_alloc : BUFFER_SIZE;
    *n = 0;
    for (uint32_t i = 0; i < w->tensors.n; i++) {
        gm_vk_planes p;
        GM_TRY(gm_vk_planes_of(&w->tensors.at[i], &p, err));
        const uint64_t size = (p.size + ALIGN - 1) / ALIGN * ALIGN;
        if (*n == 0 || sizes[*n - 1] + size > max) sizes[(*n)++] = 0;
        at[i] = (place){*n - 1, sizes[*n - 1]};
        sizes[*n - 1] += size;
    }
    return GM_OK;
}

static gm_status alloc_bufs(gm_wset *w, place *at, gm_err *err)
{
    uint64_t *sizes = NULL;
    size_t n = 0;
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_mem_alloc(&sizes, w->tensors.n, sizeof *sizes, "weights", err));
    GM_TRY_DONE(find_places(w, at, sizes, &n, err));
    GM_TRY_DONE(gm_mem_alloc(&w->bufs, n, sizeof *w->bufs, "weights", err));
    for (; w->n_bufs < n; w->n_bufs++) {
        GM_TRY_DONE(gm_vk_buf_alloc(&w->be->dev, &w->bufs[w->n_bufs], sizes[w->n_bufs], GM_VK_LOCAL,
                                    "the weights", err));
    }
    for (uint32_t i = 0; i < w->tensors.n; i++)
        w->addr[i] = w->bufs[at[i].buf].addr + at[i].off;
done:
    gm_mem_free(sizes);
    return status;
}

/* ---- what goes where ------------------------------------------------------------------------- */

#define BAND      16u            /* rows that vk_layout.c puts together */
#define TASK_SIZE (512ull << 10) /* bytes of a file, about              */

/* Rows of a tensor, and where they go. */
typedef struct piece {
    const gm_tensor *t;
    uint64_t first, n;
    uint8_t *to[GM_VK_PLANES];
    uint64_t row_size[GM_VK_PLANES];
    size_t part;
    uint32_t task_rows;            /* of a task                     */
    uint32_t task_first, task_end; /* its tasks, among those of all */
} piece;

enum { FILLING, SENT, AWAITED, FETCHED };

/* What lies in the stage together, and is fetched by one submit. */
typedef struct part {
    size_t piece_first, n_pieces;
    atomic_uint n_left; /* tasks                                       */
    atomic_uint state;  /* as above; changes with the loader's lock    */
    uint64_t value;     /* of the timeline, after which it was fetched */
} part;

typedef struct loader {
    gm_wset *w;
    const gm_progress *progress;
    gm_vk_buf stage; /* all-zero where the device's memory is mapped */
    VkCommandBuffer cmd[PARTS];
    piece *pieces;
    gm_vk_copy *copies; /* GM_VK_PLANES for each piece, of size 0 where there is none */
    part *parts;
    size_t n_pieces, n_parts, cap_pieces, cap_copies, cap_parts;
    uint64_t used; /* of the last part */

    gm_tasks tasks;
    uint32_t n_tasks;
    _Atomic uint64_t done; /* bytes of the files */
    uint64_t total;
    pthread_mutex_t lock;     /* of what follows, of recording and of submitting */
    pthread_cond_t moved;     /* a part was, to its next state, or loading has failed */
    _Atomic gm_status status; /* not GM_OK: everybody leaves */
    gm_err err;
    gm_load_times spent; /* shares: seconds of all workers */
} loader;

/* Where the rows of the last piece go: their place on the device, or one in the stage, from which they
 * are fetched. The last band is sent whole, except of weights that have none and nothing behind them. */
static void find_planes(loader *l, const gm_vk_planes *planes, const place *at)
{
    piece *const p = &l->pieces[l->n_pieces];
    gm_vk_copy *const copies = &l->copies[l->n_pieces * GM_VK_PLANES];
    const gm_vk_buf *const buf = &l->w->bufs[at->buf];
    const uint64_t padded = planes->n > 1 ? (p->n + BAND - 1) / BAND * BAND : p->n;
    for (uint32_t i = 0; i < planes->n; i++) {
        const uint64_t row = planes->row_size[i], size = padded * row;
        const uint64_t to = at->off + planes->off[i] + p->first * row;
        const uint64_t from = p->part % PARTS * PART_SIZE + l->used;
        p->row_size[i] = row;
        p->to[i] = buf->map ? buf->map + to : l->stage.map + from;
        if (!buf->map) copies[i] = (gm_vk_copy){&l->stage, buf, from, to, size};
        l->used += (size + 15) / 16 * 16;
    }
}

/* Makes room for one more piece, and for one more part if the last has not so many bytes left. */
static gm_status make_room(loader *l, uint64_t size, gm_err *err)
{
    GM_TRY(gm_mem_grow(&l->pieces, &l->cap_pieces, l->n_pieces + 1, sizeof *l->pieces, "weights",
                       err));
    GM_TRY(gm_mem_grow(&l->copies, &l->cap_copies, (l->n_pieces + 1) * GM_VK_PLANES,
                       sizeof *l->copies, "weights", err));
    memset(&l->copies[l->n_pieces * GM_VK_PLANES], 0, GM_VK_PLANES * sizeof *l->copies);
    if (l->n_parts && PART_SIZE - l->used >= size) return GM_OK;
    GM_TRY(gm_mem_grow(&l->parts, &l->cap_parts, l->n_parts + 1, sizeof *l->parts, "weights", err));
    l->parts[l->n_parts++] = (part){.piece_first = l->n_pieces};
    l->used = 0;
    return GM_OK;
}

static gm_status cut_tensor(loader *l, const gm_tensor *t, const place *at, gm_err *err)
{
    const uint64_t rows = gm_tensor_rows(t);
    const uint64_t per_task = TASK_SIZE / (gm_tensor_row_size(t) * BAND + 1) + 1;
    gm_vk_planes planes;
    uint64_t row_size = 0;
    GM_TRY(gm_vk_planes_of(t, &planes, err));
    for (uint32_t i = 0; i < planes.n; i++)
        row_size += planes.row_size[i];
    const uint64_t band = row_size * BAND + 16 * GM_VK_PLANES;
    if (band > PART_SIZE)
        return gm_fail(err, GM_E_TOOBIG, 0, "vulkan: a row of tensor %s is too long", t->name);
    for (uint64_t first = 0, n; first < rows; first += n) {
        GM_TRY(make_room(l, band, err));
        const uint64_t fit = (PART_SIZE - l->used) / band * BAND;
        part *const to = &l->parts[l->n_parts - 1];
        n = rows - first < fit ? rows - first : fit;
        const uint32_t rows_each = (uint32_t)per_task * BAND;
        const uint32_t n_tasks = (uint32_t)((n + rows_each - 1) / rows_each);
        l->pieces[l->n_pieces] = (piece){.t = t,
                                         .first = first,
                                         .n = n,
                                         .part = l->n_parts - 1,
                                         .task_rows = rows_each,
                                         .task_first = l->n_tasks,
                                         .task_end = l->n_tasks + n_tasks};
        find_planes(l, &planes, at);
        l->n_pieces++;
        l->n_tasks += n_tasks;
        to->n_pieces++;
        to->n_left += n_tasks;
    }
    return GM_OK;
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Tells everybody that something has moved on, or failed: the first failure counts. With the lock. */
static void announce(loader *l, gm_status status, const gm_err *err)
{
    if (l->status == GM_OK && status != GM_OK) {
        l->err = *err;
        l->status = status;
    }
    pthread_cond_broadcast(&l->moved);
}

/* Has the device fetch a part whose last task was done. */
static void send_part(loader *l, part *p)
{
    gm_vk_dev *const d = &l->w->be->dev;
    const VkCommandBuffer cmd = l->cmd[(size_t)(p - l->parts) % PARTS];
    gm_err err = {0};
    pthread_mutex_lock(&l->lock);
    gm_status status = l->status;
    if (status == GM_OK)
        status = gm_vk_record_copies(d, cmd, &l->copies[p->piece_first * GM_VK_PLANES],
                                     p->n_pieces * GM_VK_PLANES, &err);
    if (status == GM_OK) status = gm_vk_submit(d, cmd, &p->value, &err);
    if (status == GM_OK) p->state = SENT;
    announce(l, status, &err);
    pthread_mutex_unlock(&l->lock);
}

/* Asks the device, with the lock, which is free meanwhile. */
static void await_device(loader *l, part *p)
{
    gm_err err = {0};
    p->state = AWAITED;
    pthread_mutex_unlock(&l->lock);
    const gm_status status = gm_vk_wait(&l->w->be->dev, p->value, &err);
    pthread_mutex_lock(&l->lock);
    if (status == GM_OK) p->state = FETCHED;
    announce(l, status, &err);
}

/* Waits until the device has fetched a part, or loading has failed. One worker asks the device, the
 * others wait for that one: drivers spin. */
static void await_part(loader *l, part *p, gm_load_times *spent)
{
    if (p->state == FETCHED) return;
    double since = gm_clock_s();
    pthread_mutex_lock(&l->lock);
    while (p->state != FETCHED && l->status == GM_OK) {
        const uint32_t state = p->state;
        if (state == SENT)
            await_device(l, p);
        else
            pthread_cond_wait(&l->moved, &l->lock);
        const double now = gm_clock_s();
        *(state == FILLING ? &spent->others : &spent->bus) += now - since;
        since = now;
    }
    pthread_mutex_unlock(&l->lock);
}

static void do_task(loader *l, const piece *p, uint32_t task, gm_load_times *spent)
{
    const uint64_t first = (uint64_t)(task - p->task_first) * p->task_rows;
    const uint64_t n = p->n - first < p->task_rows ? p->n - first : p->task_rows;
    part *const in = &l->parts[p->part];
    uint8_t *to[GM_VK_PLANES];
    if (l->stage.map && p->part >= PARTS) await_part(l, in - PARTS, spent);
    if (l->status != GM_OK) return;
    for (int k = 0; k < GM_VK_PLANES; k++)
        to[k] = p->to[k] ? p->to[k] + first * p->row_size[k] : NULL;
    gm_vk_pack_rows(p->t, p->first + first, n, to);
    l->done += n * gm_tensor_row_size(p->t);
    if (atomic_fetch_sub(&in->n_left, 1) == 1 && l->stage.map) send_part(l, in);
}

static void tell(loader *l, uint64_t done)
{
    const gm_progress *const p = l->progress;
    gm_err err = {0};
    if (!p || !p->tell || p->tell(p->ctx, done, l->total)) return;
    const gm_status status = gm_fail(&err, GM_E_CANCEL, 0, "loading the weights was cancelled");
    pthread_mutex_lock(&l->lock);
    announce(l, status, &err);
    pthread_mutex_unlock(&l->lock);
}

/* Worker 0 is the thread that asked for the weights: it tells how far they are. */
static void work(void *ctx, uint32_t index)
{
    loader *const l = ctx;
    const double start = gm_clock_s();
    const piece *p = l->pieces;
    gm_load_times spent = {0};
    for (uint32_t task; l->status == GM_OK && gm_tasks_take(&l->tasks, l->n_tasks, 1, &task);) {
        while (task >= p->task_end)
            p++;
        do_task(l, p, task, &spent);
        const uint64_t done = l->done;
        if (index == 0 && done < l->total) tell(l, done);
    }
    pthread_mutex_lock(&l->lock);
    l->spent.layout += gm_clock_s() - start - spent.others - spent.bus;
    l->spent.others += spent.others;
    l->spent.bus += spent.bus;
    pthread_mutex_unlock(&l->lock);
}

/* Lays everything out, and waits until it is where it belongs. */
static gm_status stream(loader *l, gm_err *err)
{
    gm_backend *const be = l->w->be;
    gm_load_times *const spent = &l->spent;
    const double n = gm_workers_n(be->workers), start = gm_clock_s();
    gm_workers_run(be->workers, work, l);
    const double end = gm_clock_s();
    if (l->status == GM_OK) GM_TRY(gm_vk_wait(&be->dev, be->dev.n_submits, err));
    const double now = gm_clock_s(), all = n * fmax(now - start, 1e-9);
    spent->bus = (spent->bus + n * (now - end)) / all;
    spent->layout = fmax(spent->layout, 0) / all;
    spent->others /= all;
    if (l->status == GM_OK) tell(l, l->done);
    if (l->status != GM_OK && err) *err = l->err;
    return l->status;
}

static gm_status stage_alloc(loader *l, gm_err *err)
{
    gm_vk_dev *const d = &l->w->be->dev;
    bool mapped = true;
    for (size_t i = 0; i < l->w->n_bufs; i++)
        mapped = mapped && l->w->bufs[i].map;
    if (mapped) return GM_OK;
    GM_TRY(gm_vk_buf_alloc(d, &l->stage, PARTS * PART_SIZE, GM_VK_STAGING, "staging", err));
    for (int i = 0; i < PARTS; i++)
        GM_TRY(gm_vk_record_alloc(d, &l->cmd[i], err));
    return GM_OK;
}

static gm_status load_all(loader *l, const place *at, gm_err *err)
{
    gm_backend *const be = l->w->be;
    const double start = gm_clock_s();
    gm_status status = GM_OK;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    GM_TRY_DONE(stage_alloc(l, err));
    l->spent.stage_s = gm_clock_s() - start;
    for (uint32_t i = 0; i < l->w->tensors.n; i++)
        GM_TRY_DONE(cut_tensor(l, &l->w->tensors.at[i], &at[i], err));
    GM_TRY_DONE(stream(l, err));
    be->dev.count.bytes_up += l->done;
    be->load_bytes_s = (double)l->done / fmax(gm_clock_s() - start, 1e-9);
    be->load_times = l->spent;
done:
    if (status != GM_OK) gm_vk_wait(&be->dev, be->dev.n_submits, NULL); /* the stage is read */
    for (int i = 0; i < PARTS; i++)
        gm_vk_record_free(&be->dev, l->cmd[i]);
    gm_vk_buf_free(&be->dev, &l->stage);
    gm_mem_free(l->parts);
    gm_mem_free(l->copies);
    gm_mem_free(l->pieces);
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    return status;
}

gm_status gm_vk_load(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                     gm_wset **out, gm_err *err)
{
    *out = NULL;
    gm_wset *w = NULL;
    place *at = NULL;
    loader l = {.progress = progress};
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_mem_alloc(&w, 1, sizeof *w, "weights", err));
    w->be = be;
    w->tensors = *t;
    l.w = w;
    GM_TRY_DONE(gm_mem_alloc(&at, t->n, sizeof *at, "weights", err));
    GM_TRY_DONE(gm_mem_alloc(&w->addr, t->n, sizeof *w->addr, "weights", err));
    for (uint32_t i = 0; i < t->n; i++)
        l.total += t->at[i].size;
    const double start = gm_clock_s();
    GM_TRY_DONE(alloc_bufs(w, at, err));
    l.spent.memory_s = gm_clock_s() - start;
    GM_TRY_DONE(load_all(&l, at, err));
    *out = w;
done:
    gm_mem_free(at);
    if (status != GM_OK) gm_vk_unload(w);
    return status;
}

void gm_vk_unload(gm_wset *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_bufs; i++)
        gm_vk_buf_free(&w->be->dev, &w->bufs[i]);
    gm_mem_free(w->bufs);
    gm_mem_free(w->addr);
    gm_mem_free(w);
}
