/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_TUNE_H
#define GM_BACKEND_VK_TUNE_H

/* What is found out by trying: vk_trial.c measures kernels that give the same bits on a model's own
 * weights, by times that the device takes (vk_prof.c), and vk_choice.c keeps the answers. */

#include "backend/backend.h"
#include "backend/vk/vk_record.h"

#define GM_VK_NAME 96 /* of what is computed, and of a way to do it */

/* vk_choice.c: what was found to be fastest here, by names: a file of lines, for this device, driver
 * and build. Those of things that nobody computes any more go when there are GM_VK_CHOICES. */
#define GM_VK_CHOICES 1024
typedef struct gm_vk_choice {
    char what[GM_VK_NAME], way[GM_VK_NAME];
    double us, usual_us; /* that way, and the usual one             */
    uint32_t pass;       /* of trials that found it; 0: one before this */
} gm_vk_choice;
typedef struct gm_vk_choices {
    gm_vk_choice *at;
    size_t n, cap;
    uint32_t pass;   /* that puts choices now */
    char given[201]; /* somebody's own file that they are from (its beginning), or "" */
} gm_vk_choices;
/* How kernels of one row follow each other (inc/flow.glsl) is a choice like others, of a plan by its
 * name, or of all whose name is not there. */
#define GM_VK_FLOW     "kernels of one row"
#define GM_VK_FLOW_ON  "wait for each other"
#define GM_VK_FLOW_OFF "barriers"
void gm_vk_flow_name(const gm_plan *p, char name[GM_VK_NAME]);
bool gm_vk_choices_flow(const gm_vk_choices *c, const gm_plan *p);
bool gm_vk_choices_concern(const gm_vk_choices *c, const gm_plan *p); /* any of them, it */
uint64_t gm_vk_plan_hash(const gm_plan *p, uint64_t seed);            /* of its products */
void gm_vk_choices_read(gm_backend *be);
/* The same lines from somebody's own file. One that is no line, or names what this device does not
 * have, is refused (GM_E_FORMAT). */
gm_status gm_vk_choices_load(gm_backend *be, const char *path, gm_err *err);
/* Where they could not be written, err says so, or, where it is NULL, a note. */
gm_status gm_vk_choices_write(gm_backend *be, gm_err *err);
gm_status gm_vk_choices_forget(gm_backend *be, gm_err *err); /* and their file */
const gm_vk_choice *gm_vk_choices_find(const gm_vk_choices *c, const char *what);
gm_status gm_vk_choices_put(gm_vk_choices *c, const gm_vk_choice *one, gm_err *err);
void gm_vk_choices_remove(gm_vk_choices *c, const char *what);

/* vk_trial.c: the cut that a product gets here: the chosen one, the usual one, or the one that is
 * tried now; then the answer is the number of what is tried, else 0. */
struct gm_vk_product;
struct gm_vk_cut;
uint32_t gm_vk_trial_cut(gm_backend *be, const struct gm_vk_product *p, struct gm_vk_cut *out);
gm_status gm_vk_try_plan(gm_backend *be, const gm_tune_model *m, const gm_tune_how *how,
                         gm_err *err);

/* vk_prof.c: a list that is recorded with a time after each dispatch, or after all where it is timed as
 * a whole, and run as often as one likes. */
typedef struct gm_vk_timed {
    VkCommandBuffer cmd;
    VkQueryPool times;
    uint64_t *ticks; /* [n + 1] of the last run */
    size_t n;        /* dispatches, or 1        */
    bool whole;
    uint32_t slice; /* whose step it is        */
} gm_vk_timed;
gm_status gm_vk_timed_open(gm_vk_timed *t, gm_exec *ex, const gm_vk_list *list, gm_err *err);
gm_status gm_vk_timed_run(gm_vk_timed *t, gm_exec *ex, gm_err *err);
double gm_vk_timed_us(const gm_vk_timed *t, const gm_exec *ex, size_t i);
void gm_vk_timed_close(gm_vk_timed *t, gm_exec *ex);

#endif
