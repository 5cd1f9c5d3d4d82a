/* SPDX-License-Identifier: MIT */
/* The draw on the host. The arithmetic that devices share is in draw_law.h; here
 * is the walk over a row.
 *
 * The cuts keep a beginning of the tokens in order of their logit, so they need
 * that order only as far as they reach: a heap over the row is built in n steps
 * and then popped until every cut is decided. Sorting the row would cost about
 * twenty times as much for 262144 tokens and top-k 64. */

#include "plan/draw.h"

#include <math.h>
#include <string.h>

#include "base/fp16.h"

#define GM_LAW           static inline
#define GM_LAW_F32       float
#define GM_LAW_ARG       float
#define GM_LAW_U32       uint32_t
#define GM_LAW_BITS(f)   gm_f32_bits(f)
#define GM_LAW_FLOAT(u)  gm_f32_from_bits(u)
#define GM_LAW_TO_F32(x) ((float)(x))
#define GM_LAW_TO_U32(x) ((uint32_t)(x))
#define GM_LAW_TO_I32(x) ((int32_t)(x))
#define GM_LAW_FLOOR(f)  floorf(f)
#include "plan/draw_law.h"

/* True when token a comes before token b: larger logit, NaN last, then lower id. */
static bool before(const float *l, uint32_t a, uint32_t b)
{
    if (l[a] > l[b]) return true;
    if (l[a] < l[b]) return false;
    return isnan(l[a]) == isnan(l[b]) ? a < b : isnan(l[b]);
}

static void sift_down(const float *l, uint32_t *heap, uint32_t n, uint32_t i)
{
    const uint32_t moved = heap[i];
    for (uint32_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && before(l, heap[child + 1], heap[child])) child++;
        if (!before(l, heap[child], moved)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

/* Takes the top off a heap of *n tokens; the tokens taken stand, last taken first, behind it. */
static uint32_t heap_pop(const float *l, uint32_t *heap, uint32_t *n)
{
    const uint32_t top = heap[0];
    const uint32_t last = heap[--*n];
    heap[0] = last;
    sift_down(l, heap, *n, 0);
    heap[*n] = top;
    return top;
}

/* Orders n tokens as a heap: the first is on top. */
static void heap_make(const float *l, uint32_t *heap, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(l, heap, n, i);
}

static uint32_t list_all(uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list[i] = i;
    return n;
}

/* The largest of n logits, -infinity where there is no number. In lanes, so that compilers may use
 * vectors: which of equal zeros it is does not matter. */
static float largest_of(const float *l, uint32_t n)
{
    enum { LANES = 16 };
    float max[LANES], m = -INFINITY;
    uint32_t i = 0;
    for (uint32_t j = 0; j < LANES; j++)
        max[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++)
            max[j] = l[i + j] > max[j] ? l[i + j] : max[j];
    }
    for (; i < n; i++)
        m = l[i] > m ? l[i] : m;
    for (uint32_t j = 0; j < LANES; j++)
        m = max[j] > m ? max[j] : m;
    return m;
}

/* The token before all others. */
static uint32_t first_of(const float *l, uint32_t n)
{
    const float max = largest_of(l, n);
    for (uint32_t i = 0; i < n; i++) {
        if (l[i] == max) return i;
    }
    return 0; /* no logit is a number */
}

/* Lists tokens among which the first k are; answers how many. The row is cut into stretches and the
 * k-th best of their maxima is a bar that at least k tokens reach: a pass over the row, another over the
 * stretches that reach the bar, and a heap of hundreds instead of 262144. */
static uint32_t list_first(const float *l, uint32_t n, uint32_t k, uint32_t *list)
{
    enum { STRETCHES = 1024 };
    const uint32_t len = (n + STRETCHES - 1) / STRETCHES;
    if (k == 0 || k > STRETCHES / 4 || len < 8) return list_all(list, n);
    float max[STRETCHES];
    uint32_t order[STRETCHES] = {0}, n_max = 0;
    for (uint32_t first = 0; first < n; first += len, n_max++) {
        const uint32_t end = first + len < n ? first + len : n;
        max[n_max] = largest_of(l + first, end - first);
    }
    uint32_t left = list_all(order, n_max), bar = 0, m = 0;
    heap_make(max, order, n_max);
    for (uint32_t i = 0; i < k; i++)
        bar = heap_pop(max, order, &left);
    for (uint32_t s = 0; s < n_max; s++) {
        if (max[s] < max[bar]) continue;
        for (uint32_t i = s * len; i < n && i < (s + 1) * len; i++) {
            if (!(l[i] < max[bar])) list[m++] = i; /* NaN too, or there might be fewer than k */
        }
    }
    return m;
}

/* Steps 1 to 3: the logits that the draw looks at, in `out` unless they stay as they are. */
static const float *adjust(const float *logits, uint32_t n, const gm_draw_row *row, float *out)
{
    const gm_draw *const d = row->draw;
    if (!row->counts && !row->n_bias && !row->mask) return logits;
    memcpy(out, logits, n * sizeof *out);
    for (uint32_t i = 0; row->counts && i < n; i++) {
        const gm_draw_count c = row->counts[i];
        if (c.prompt || c.answer) out[i] *= out[i] > 0 ? d->inv_repeat : d->repeat;
        if (c.answer) out[i] = out[i] - d->frequency * (float)c.answer - d->presence;
    }
    for (uint32_t i = 0; i < row->n_bias; i++)
        out[row->bias[i].id] += row->bias[i].bias;
    for (uint32_t i = 0; row->mask && i < n; i++) {
        if (!(row->mask[i / 32] >> (i % 32) & 1)) out[i] = -INFINITY;
    }
    return out;
}

/* What is drawn where every token is out or has no logit. */
static uint32_t lowest_allowed(const uint32_t *mask, uint32_t n)
{
    for (uint32_t i = 0; mask && i < n; i++) {
        if (mask[i / 32] >> (i % 32) & 1) return i;
    }
    return 0;
}

/* Step 7: how many of the n_kept first tokens (order: last taken first at tail) top-p keeps. */
static uint32_t cut_top_p(const float *l, const uint32_t *tail, uint32_t n_kept, const gm_draw *d)
{
    const float first = l[tail[-1]];
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 1; i <= n_kept; i++)
        total += gm_law_weight((l[tail[-(ptrdiff_t)i]] - first) * d->inv_temp);
    const uint64_t want = total * d->top_p;
    for (uint32_t i = 1; i <= n_kept; i++) {
        sum += gm_law_weight((l[tail[-(ptrdiff_t)i]] - first) * d->inv_temp);
        if (sum << 20 >= want) return i;
    }
    return n_kept;
}

/* Steps 5 to 8 for the n tokens listed. The ones that stay stand at the end of order[n], the first of them last;
 * returns how many they are. */
static uint32_t cut(const float *l, uint32_t n, const gm_draw *d, uint32_t *order)
{
    heap_make(l, order, n);
    const uint32_t most = d->top_k && d->top_k < n ? d->top_k : n;
    const float first = l[order[0]];
    const bool needs_weights = d->top_p < GM_DRAW_TOP_P_OFF;
    uint32_t left = n, kept = 0;
    do {
        heap_pop(l, order, &left);
        kept++;
        /* Top-p needs the weights past min-p's border too; without it the walk ends there. */
    } while (kept < most && l[order[0]] > -INFINITY &&
             (needs_weights || (l[order[0]] - first) * d->inv_temp >= d->log_min_p));
    if (needs_weights) kept = cut_top_p(l, order + n, kept, d);
    while (kept > 1 && !((l[order[n - kept]] - first) * d->inv_temp >= d->log_min_p))
        kept--;
    return kept;
}

/* Step 9 for one token: the score that has to be the largest. */
typedef struct gm_draw_key {
    uint32_t key0, key1;
    float inv_temp;
} gm_draw_key;

static float score(const gm_draw_key *k, const float *l, uint32_t id)
{
    return l[id] * k->inv_temp + gm_law_noise(k->key0, k->key1, id);
}

uint32_t gm_draw_token(const float *logits, uint32_t n, const gm_draw_row *row,
                       const gm_draw_scratch *scratch)
{
    const gm_draw *const d = row->draw;
    const float *const l = adjust(logits, n, row, scratch->adjusted);
    const bool cuts =
        d->inv_temp != 0 && (d->top_k || d->top_p < GM_DRAW_TOP_P_OFF || d->log_min_p > -INFINITY);
    const uint32_t m = cuts ? list_first(l, n, d->top_k, scratch->order) : n;
    const uint32_t kept = cuts ? cut(l, m, d, scratch->order) : n;
    const gm_draw_key key = {
        .key0 = gm_law_key0(d->seed_lo, row->pos),
        .key1 = gm_law_key1(d->seed_hi, row->pos),
        .inv_temp = d->inv_temp,
    };
    uint32_t best = cuts ? scratch->order[m - 1] : first_of(l, n);
    if (!(l[best] > -INFINITY)) return lowest_allowed(row->mask, n);
    if (d->inv_temp == 0) return best;
    float best_score = score(&key, l, best);
    for (uint32_t i = 0; i < kept; i++) {
        const uint32_t id = cuts ? scratch->order[m - 1 - i] : i;
        const float s = score(&key, l, id);
        if (s > best_score || (s == best_score && id < best)) {
            best = id;
            best_score = s;
        }
    }
    return best;
}

double gm_draw_logsum(const float *logits, uint32_t n)
{
    const float max = logits[first_of(logits, n)];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)max);
    return (double)max + log(sum);
}

/* A logit that is no number, or none at all, says nothing of the sum. */
double gm_draw_logsum_by(const float *logits, uint32_t n, uint32_t token, float logprob)
{
    const double sum = (double)logits[token] - (double)logprob;
    return isfinite(sum) ? sum : gm_draw_logsum(logits, n);
}

/* FNV-1a. */
uint64_t gm_draw_hash(const float *logits, uint32_t n)
{
    const uint8_t *const bytes = (const uint8_t *)logits;
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < n * sizeof *logits; i++)
        h = (h ^ bytes[i]) * 1099511628211ull;
    return h;
}

void gm_draw_top(const float *logits, uint32_t n, double logsum, uint32_t k, uint32_t *order,
                 gm_candidate *out)
{
    uint32_t left = list_first(logits, n, k, order);
    heap_make(logits, order, left);
    for (uint32_t i = 0; i < k; i++) {
        const uint32_t id = heap_pop(logits, order, &left);
        out[i] = (gm_candidate){(int32_t)id, (float)((double)logits[id] - logsum)};
    }
}
