/* SPDX-License-Identifier: MIT */
#include "plan/step.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

/* Reserves room for n entries at the block's end; offsets are 16-byte aligned for devices. */
static bool reserve(uint64_t *end, uint32_t n, uint64_t size, uint32_t *off)
{
    uint64_t bytes = 0;
    *off = (uint32_t)*end;
    return gm_size_mul(n, size, &bytes) && gm_size_align(bytes, 16, &bytes) &&
           gm_size_add(*end, bytes, end) && *end <= UINT32_MAX;
}

gm_status gm_step_alloc(gm_step **out, const gm_step_limits *limits, gm_err *err)
{
    *out = NULL;
    gm_step h = {.limits = *limits};
    uint64_t end = 0;
    const bool fits = gm_size_align(sizeof h, 16, &end) &&
                      reserve(&end, limits->rows, sizeof(gm_step_row), &h.rows_off) &&
                      reserve(&end, limits->segs, sizeof(gm_step_seg), &h.segs_off) &&
                      reserve(&end, limits->outs, sizeof(gm_step_out), &h.outs_off) &&
                      reserve(&end, limits->edits, sizeof(gm_page_edit), &h.edits_off) &&
                      reserve(&end, limits->copies, sizeof(gm_page_copy), &h.copies_off) &&
                      reserve(&end, limits->sets, sizeof(gm_slot_set), &h.sets_off) &&
                      reserve(&end, limits->biases, sizeof(gm_bias), &h.biases_off) &&
                      reserve(&end, limits->counts, sizeof(gm_count_edit), &h.counts_off) &&
                      reserve(&end, limits->masks, 4ull * limits->mask_words, &h.masks_off) &&
                      reserve(&end, limits->given, 4ull * limits->given_cols, &h.given_off);
    if (!fits) return gm_fail(err, GM_E_TOOBIG, 0, "step: larger than 4 GiB");
    GM_TRY(gm_mem_alloc(out, 1, (size_t)end, "a step", err));
    h.size = (uint32_t)end;
    **out = h;
    return GM_OK;
}

void gm_step_free(gm_step *s)
{
    gm_mem_free(s);
}

void gm_step_clear(gm_step *s)
{
    s->n_rows = s->n_segs = s->n_outs = s->n_edits = s->n_copies = s->n_sets = 0;
    s->n_biases = s->n_counts = s->n_masks = s->n_given = s->n_head = s->n_draw = 0;
}

/* Appends one entry of `size` bytes to the part at off. */
static bool put(gm_step *s, uint32_t off, uint32_t *n, uint32_t limit, const void *entry,
                size_t size)
{
    if (*n >= limit) return false;
    memcpy((uint8_t *)s + off + *n * size, entry, size);
    ++*n;
    return true;
}

static const void *part(const gm_step *s, uint32_t off)
{
    return (const uint8_t *)s + off;
}

bool gm_step_put_row(gm_step *s, const gm_step_row *row)
{
    return put(s, s->rows_off, &s->n_rows, s->limits.rows, row, sizeof *row);
}

bool gm_step_put_seg(gm_step *s, const gm_step_seg *seg)
{
    return put(s, s->segs_off, &s->n_segs, s->limits.segs, seg, sizeof *seg);
}

bool gm_step_put_out(gm_step *s, const gm_step_out *out)
{
    if (!put(s, s->outs_off, &s->n_outs, s->limits.outs, out, sizeof *out)) return false;
    if (out->want & (GM_WANT_DRAW | GM_WANT_LOGITS | GM_WANT_TOP)) s->n_head++;
    if (out->want & GM_WANT_DRAW) s->n_draw++;
    return true;
}

bool gm_step_put_edit(gm_step *s, const gm_page_edit *edit)
{
    return put(s, s->edits_off, &s->n_edits, s->limits.edits, edit, sizeof *edit);
}

bool gm_step_put_copy(gm_step *s, const gm_page_copy *copy)
{
    return put(s, s->copies_off, &s->n_copies, s->limits.copies, copy, sizeof *copy);
}

bool gm_step_put_set(gm_step *s, uint32_t slot, const gm_draw *draw, const gm_bias *bias,
                     uint32_t n_bias)
{
    if (n_bias > s->limits.biases - s->n_biases) return false;
    const gm_slot_set set = {slot, s->n_biases, n_bias, *draw};
    if (!put(s, s->sets_off, &s->n_sets, s->limits.sets, &set, sizeof set)) return false;
    for (uint32_t i = 0; i < n_bias; i++)
        put(s, s->biases_off, &s->n_biases, s->limits.biases, &bias[i], sizeof *bias);
    return true;
}

bool gm_step_put_count(gm_step *s, const gm_count_edit *edit)
{
    return put(s, s->counts_off, &s->n_counts, s->limits.counts, edit, sizeof *edit);
}

bool gm_step_put_given(gm_step *s, const float *row, uint32_t *index)
{
    *index = s->n_given;
    return put(s, s->given_off, &s->n_given, s->limits.given, row,
               sizeof *row * s->limits.given_cols);
}

bool gm_step_put_mask(gm_step *s, const uint32_t *words, uint32_t *index)
{
    *index = s->n_masks;
    return put(s, s->masks_off, &s->n_masks, s->limits.masks, words,
               sizeof *words * s->limits.mask_words);
}

gm_status gm_step_check(const gm_step *s, uint32_t max_rows, uint32_t max_outs, gm_err *err)
{
    if (s->n_rows > max_rows || s->n_outs > max_outs) {
        return gm_fail(err, GM_E_ARG, 0,
                       "step: %" PRIu32 " rows and %" PRIu32 " outputs, expected at most %" PRIu32
                       " and %" PRIu32,
                       s->n_rows, s->n_outs, max_rows, max_outs);
    }
    for (uint32_t i = 0; i < s->n_outs; i++) {
        const gm_step_out *const o = &gm_step_outs(s)[i];
        if (o->row >= s->n_rows || o->n_top > GM_TOP_MAX ||
            (o->mask != GM_NO_MASK && o->mask >= s->n_masks)) {
            return gm_fail(err, GM_E_ARG, 0, "step: output %" PRIu32 " is out of bounds", i);
        }
    }
    return GM_OK;
}

const gm_step_row *gm_step_rows(const gm_step *s)
{
    return part(s, s->rows_off);
}

const gm_step_seg *gm_step_segs(const gm_step *s)
{
    return part(s, s->segs_off);
}

const gm_step_out *gm_step_outs(const gm_step *s)
{
    return part(s, s->outs_off);
}

const gm_page_edit *gm_step_edits(const gm_step *s)
{
    return part(s, s->edits_off);
}

const gm_page_copy *gm_step_copies(const gm_step *s)
{
    return part(s, s->copies_off);
}

const gm_slot_set *gm_step_sets(const gm_step *s)
{
    return part(s, s->sets_off);
}

const gm_bias *gm_step_biases(const gm_step *s)
{
    return part(s, s->biases_off);
}

const gm_count_edit *gm_step_counts(const gm_step *s)
{
    return part(s, s->counts_off);
}

const uint32_t *gm_step_mask_at(const gm_step *s, uint32_t index)
{
    return (const uint32_t *)part(s, s->masks_off) + (size_t)index * s->limits.mask_words;
}

const float *gm_step_given_at(const gm_step *s, uint32_t index)
{
    return (const float *)part(s, s->given_off) + (size_t)index * s->limits.given_cols;
}
