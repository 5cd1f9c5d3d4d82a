/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_RECORD_H
#define GM_BACKEND_VK_RECORD_H

/* A list of dispatches, and what becomes of it. Lowering appends dispatches and says for each what
 * it reads and writes; barriers follow from that, and a list whose barriers do not suffice is found
 * out. vk_record.c is the only file that calls vkCmd*. */

#include "backend/vk/vk_pipeline.h"
#include "plan/op.h"
#include "quant/tensor.h"

#define GM_VK_RANGES 16

/* Bytes that a dispatch touches. Address and size need not be memory's: any numbers that overlap
 * where memory would. */
typedef struct gm_vk_range {
    uint64_t addr, size;
    bool write;
} gm_vk_range;

typedef struct gm_vk_dispatch {
    uint32_t pipe;
    uint32_t grid[3];
    int32_t indirect; /* number of the grid that the step brings, or -1 */
    uint32_t n_push;
    uint32_t n_ranges;
    bool barrier;    /* everything before it is finished and seen */
    bool waits;      /* it waits itself for the one before (inc/flow.glsl) */
    uint32_t flow;   /* where in push its gm_vk_flow is, 0: it knows nothing of that */
    uint32_t n_done; /* how often it counts itself when it is done, 0: not at all    */
    uint32_t n_held; /* and before, when the two behind it may ask for much, 0: they may always */
    double work;     /* multiplications of products, of as many rows as there can be */
    const gm_tensor *weights[3]; /* n_weights of them, if it is a product */
    uint32_t n_weights;
    bool norms;           /* it does those before or behind it, too   */
    const gm_op *attends; /* the attention that it is, or NULL        */
    uint32_t tried;       /* what of it a trial tries (gm_vk_trial_cut), or 0 */
    uint8_t push[GM_VK_PUSH];
    gm_vk_range ranges[GM_VK_RANGES];
} gm_vk_dispatch;

typedef struct gm_vk_list {
    gm_vk_dispatch *at;
    size_t n, cap;
} gm_vk_list;

gm_status gm_vk_list_add(gm_vk_list *l, const gm_vk_dispatch *d, gm_err *err);
void gm_vk_list_deinit(gm_vk_list *l);

/* Puts a barrier before each dispatch that needs one; or has it wait for the one before, where both
 * can. */
void gm_vk_list_place_barriers(gm_vk_list *l);

/* Gives dispatches that wait, and those that are waited for, counters from an address on, each
 * GM_VK_FLOW_SIZE bytes; all must be 0 before the list runs. Who looks at one that often in vain
 * gives up and sets the word `late`. Answers how many counters there are. */
uint32_t gm_vk_list_place_flow(gm_vk_list *l, uint64_t counters, uint64_t late, uint32_t patience);

/* The first dispatch that touches what an earlier one still writes, or writes what one still reads;
 * l->n when there is none. */
size_t gm_vk_list_find_hazard(const gm_vk_list *l);

/* Cuts the list into pieces of at most so much work, or of one dispatch that has more: ends[i] is one
 * past the last dispatch of piece i. Answers how many there are, at most 2 * all work / most + 1. */
uint32_t gm_vk_list_cut(const gm_vk_list *l, double most, size_t *ends);

/* How a list is recorded: grids holds the indirect ones from byte grids_off on; with times, the time
 * after dispatch i becomes its query i + 1, and query 0 the time before all; as a whole there are two
 * times, which leave dispatches their overlap. */
typedef struct gm_vk_recording {
    const gm_vk_pipes *pipes;
    const gm_vk_list *list;
    const gm_vk_buf *grids;
    uint64_t grids_off;
    VkQueryPool times; /* or NULL */
    bool whole;
    /* Words of norms in front of products, set to 0 before all: a buffer from an address on, or NULL. */
    const gm_vk_buf *fronts;
    uint64_t fronts_at;
    /* Counters of dispatches that wait, set to 0 before all, or NULL; and what they hand on to each
     * other, set to a word: so many bytes of a buffer. */
    const gm_vk_buf *flow, *values;
    uint64_t values_off, values_size;
    uint32_t values_word;
} gm_vk_recording;
gm_status gm_vk_record(gm_vk_dev *d, const gm_vk_recording *r, VkCommandBuffer *out, gm_err *err);
void gm_vk_record_free(gm_vk_dev *d, VkCommandBuffer cmd);

/* Copies, and waits for them: loading only. */
typedef struct gm_vk_copy {
    const gm_vk_buf *from, *to;
    uint64_t from_off, to_off, size;
} gm_vk_copy;
gm_status gm_vk_record_copies(gm_vk_dev *d, VkCommandBuffer cmd, const gm_vk_copy *copies, size_t n,
                              gm_err *err);
gm_status gm_vk_record_alloc(gm_vk_dev *d, VkCommandBuffer *out, gm_err *err);
gm_status gm_vk_copy_now(gm_vk_dev *d, const gm_vk_copy *copies, size_t n, gm_err *err);
gm_status gm_vk_fill_now(gm_vk_dev *d, const gm_vk_buf *b, uint32_t word, gm_err *err);

#endif
