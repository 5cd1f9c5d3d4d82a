/* SPDX-License-Identifier: MIT */
#ifndef GM_TOOLBOX_READER_H
#define GM_TOOLBOX_READER_H

/* Reading a text from end to end: a model on a backend with one sequence, of whose
 * rows every one is an output.
 *
 * A text that is longer than the context is read in windows. They do not overlap, and
 * each begins with <bos>, as everything does that the model has seen; so all of them
 * lie one behind the other in one list of ids, and a row's position is its index
 * modulo the window.
 *
 *     gm_pages pages = {0};
 *     gm_pages_init(&pages, m, text, 512, err);
 *     gm_reader_init(&r, m, &opts, &cfg, err);
 *     for (uint32_t at = 0, n; (n = gm_pages_chunk(&pages, at, r.place.most.rows)); at += n)
 *         gm_reader_read(&r, &pages, at, n, GM_WANT_LOGITS, &result, err); ... */

#include "engine/place.h"

typedef struct gm_pages {
    gm_ids ids;
    uint32_t window;
} gm_pages;

/* Cuts a text into windows of that many tokens, 2 or more. Fails where it comes to no token. */
gm_status gm_pages_init(gm_pages *p, const gm_model *m, gm_str text, uint32_t window, gm_err *err);
void gm_pages_deinit(gm_pages *p);

/* How many tokens from index `at` on go into one step of at most that many rows; 0 at the end. */
uint32_t gm_pages_chunk(const gm_pages *p, uint32_t at, uint32_t most);

/* In how many such steps all of it is read. */
uint32_t gm_pages_steps(const gm_pages *p, uint32_t most);

/* The token that the row of index `at` should foretell, GM_NO_TOKEN at the end of a window. */
int32_t gm_pages_target(const gm_pages *p, uint32_t at);

typedef struct gm_reader {
    gm_place place;
    gm_arena arena;
    gm_kvtable table;
    gm_step *step;
} gm_reader;

/* The most rows of a step, a power of two up to 64, whose row_size bytes each fit into 256 MiB: what
 * a step brings back should not take more memory than a small model. */
uint32_t gm_reader_rows(uint64_t row_size);

/* cfg says rows, and the plan where it is not the model's; a failed or all-zero reader is
 * deinitialised like a whole one. */
gm_status gm_reader_init(gm_reader *r, const gm_model *m, const gm_engine_opts *opts,
                         const gm_place_cfg *cfg, gm_err *err);
void gm_reader_deinit(gm_reader *r);

/* Reads n tokens (gm_pages_chunk) of the pages, in order; `want` is wanted of every row. */
gm_status gm_reader_read(gm_reader *r, const gm_pages *p, uint32_t at, uint32_t n, uint32_t want,
                         gm_result *out, gm_err *err);

#endif
