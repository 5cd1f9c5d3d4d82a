/* SPDX-License-Identifier: MIT */
#ifndef GEMMULE_TOOLS_H
#define GEMMULE_TOOLS_H

/* For programs that prepare models and look into them. The same rules as in
 * gemmule.h hold: one sentence for a failure, no printing, no exiting. */

#include "gemmule.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- looking into a model file --------------------------------------------------------- */

/* A model file opened for reading its metadata and tensor table; it need not be a Gemma 3. */
typedef struct gm_modelfile gm_modelfile;

gm_status gm_modelfile_open(gm_modelfile **out, const char *path, gm_err *err);
void gm_modelfile_close(gm_modelfile *f);

/* "GGUF v3", "Hugging Face safetensors". */
const char *gm_modelfile_format(const gm_modelfile *f);

typedef struct gm_keyinfo {
    uint32_t size;   /* sizeof(gm_keyinfo), filled in by the caller                            */
    const char *key; /* not NUL-terminated: key_len bytes                                      */
    size_t key_len;
    const char *type; /* "u32", "string", "array of f32"                                        */
    uint64_t n;       /* elements of an array, 1 for anything else                              */
    char value[200];  /* as text, safe to show; long strings and arrays end in "..."            */
} gm_keyinfo;
/* The i-th key; GM_E_ARG past the last. */
gm_status gm_modelfile_key(const gm_modelfile *f, size_t i, gm_keyinfo *info);

typedef struct gm_tensorinfo {
    uint32_t size;
    uint32_t n_dims;
    uint64_t shape[4]; /* rightmost contiguous */
    const char *name;
    const char *type;
    uint64_t bytes;
} gm_tensorinfo;
/* The i-th tensor of the text model; GM_E_ARG past the last. */
gm_status gm_modelfile_tensor(const gm_modelfile *f, size_t i, gm_tensorinfo *info);

/* Tensors of a vision tower, which are named and left out: how many, and their bytes. */
uint32_t gm_modelfile_skipped(const gm_modelfile *f, uint64_t *bytes);

/* Memory that a model needs beside its file: bytes of KV cache for n_ctx positions of one request. */
uint64_t gm_model_kv_size(const gm_model *m, uint32_t n_ctx);

/* The model's plan, one line an op, in malloc'ed text that gm_text_free frees. */
gm_status gm_model_plan_text(const gm_model *m, char **text, gm_err *err);
void gm_text_free(char *text);

/* ---- synthetic models ------------------------------------------------------------------ */

typedef struct gm_synth_opts {
    uint32_t size;
    uint32_t force;        /* 1: replace a file that is there                              */
    const char *shape;     /* "tiny", "narrow", "270m", "1b", "4b", "12b" or "27b"         */
    const char *type;      /* of the layers' matrices: "q4_0", "bf16" ...                  */
    const char *head_type; /* of the embedding and head; NULL: the same                    */
    uint64_t seed;
    gm_progress_fn progress; /* may be NULL */
    void *progress_ctx;
} gm_synth_opts;
gm_synth_opts gm_synth_opts_default(void);

/* Writes a Gemma 3 model with random weights: the right shapes and metadata, a vocabulary with
 * Gemma's control ids and byte pieces, weights from a counter (docs/SYNTH.md), so the same options
 * give the same bytes on every machine. The file appears under its name only when it is whole. */
gm_status gm_synth_write(const char *path, const gm_synth_opts *opts, gm_err *err);

/* ---- importance ------------------------------------------------------------------------ */

/* How much each column of each matrix matters for the model's answers, measured on text: what
 * calibration makes and conversion uses. */
typedef struct gm_importance gm_importance;
void gm_importance_free(gm_importance *imp); /* NULL is fine */

typedef struct gm_calibrate_opts {
    uint32_t size;
    const char *text; /* like what the model will be used for; some ten thousand words are plenty */
    size_t len;
    gm_progress_fn progress; /* may be NULL; in bytes of weights gone through */
    void *progress_ctx;
    gm_engine_opts engine; /* n_ctx: tokens that are read in one go */
} gm_calibrate_opts;
gm_calibrate_opts gm_calibrate_opts_default(void);

/* Reads a text with the model, and measures how large the inputs of each product are: column by
 * column the mean of their squares. */
gm_status gm_calibrate(gm_importance **out, const gm_model *m, const gm_calibrate_opts *opts,
                       gm_err *err);

/* ---- converting ------------------------------------------------------------------------ */

/* A model on its way from a Hugging Face folder or a GGUF file to a GGUF file of another type. */
typedef struct gm_convert gm_convert;

typedef struct gm_convert_opts {
    uint32_t size;
    uint32_t force;        /* 1: replace a file that is there                              */
    uint32_t n_threads;    /* 0: one a physical core                                       */
    uint32_t plain;        /* 1: plain rounding instead of the search for the least error  */
    const char *type;      /* a name that gm_convert_type lists                            */
    const char *head_type; /* of the head, which mostly is the embedding; NULL: the type's */
    const gm_importance *importance; /* NULL: all columns alike; must outlive the gm_convert */
    gm_progress_fn progress;         /* may be NULL; in bytes of the result                  */
    void *progress_ctx;
} gm_convert_opts;
gm_convert_opts gm_convert_opts_default(void);

/* The i-th type or mix of types that a model can be converted to, NULL past the last; with a line
 * about it. */
const char *gm_convert_type(size_t i, const char **about);

/* Opens the source, checks it (but for its weights' values) and plans the result. Nothing is
 * written. Refuses a target that is there already unless forced (GM_E_IO, EEXIST), and one that is
 * part of the source always. */
gm_status gm_convert_open(gm_convert **out, const char *source, const char *path,
                          const gm_convert_opts *opts, gm_err *err);

typedef struct gm_convert_info {
    uint32_t size;
    uint32_t n_tensors;
    uint32_t n_skipped;  /* tensors of a vision tower, which are left out                      */
    uint32_t n_fallback; /* matrices whose rows do not fit the type, and have another          */
    uint32_t n_again;    /* matrices that are quantised already, and are so once more          */
    uint64_t source_size, result_size; /* bytes of the tensors; of the whole file          */
    uint64_t disk_free;                /* bytes that the target's disk has                     */
    double bits;                       /* of the result, for each weight                       */
} gm_convert_info;
void gm_convert_describe(const gm_convert *c, gm_convert_info *info);

/* Does it, once. A value that is not a number, a full disk or a cancel ends it, and nothing is left
 * behind; the file appears under its name only when it is whole. */
gm_status gm_convert_run(gm_convert *c, gm_err *err);
void gm_convert_close(gm_convert *c); /* NULL is fine */

/* ---- comparing ------------------------------------------------------------------------- */

typedef struct gm_compare_opts {
    uint32_t size;
    uint32_t n_worst;        /* tensors to name, up to GM_COMPARE_WORST                     */
    const char *text;        /* what both read; NULL: one that is built in                  */
    size_t len;              /* bytes of it                                                 */
    gm_progress_fn progress; /* may be NULL; in bytes of weights gone through               */
    void *progress_ctx;
    gm_engine_opts engine; /* n_ctx: tokens that are read in one go                         */
} gm_compare_opts;
gm_compare_opts gm_compare_opts_default(void);

typedef struct gm_compare_side {
    uint64_t bytes;    /* of the weights                                                    */
    double bits;       /* for each weight                                                   */
    double perplexity; /* e to the mean of -log(probability) of the text's tokens           */
} gm_compare_side;

typedef struct gm_compare_tensor {
    const char *name;    /* valid until the first model is closed, as the types are         */
    const char *type[2]; /* of either model                                                 */
    double error;        /* the differences' root mean square, in that of the first's values */
} gm_compare_tensor;

#define GM_COMPARE_WORST 10
typedef struct gm_compare_result {
    uint32_t size;
    uint32_t n_tokens;                /* that were foretold                                 */
    gm_compare_side side[2];          /* the first model and the second                     */
    double kl_mean, kl_p99, kl_worst; /* divergence of the second's probabilities from the first's,
                                         in nats a token: mean, 99th percentile, largest    */
    double kl_error;                  /* standard error of kl_mean, which few tokens may decide */
    double ppl_ratio, ppl_error;      /* perplexity of the second over the first's, and its
                                         standard error: 1.001 and 0.002 say nothing        */
    double same_top;                  /* share of tokens where both find the same one likeliest */
    double logprob_diff;              /* mean difference of the log-probability of a token  */
    uint32_t n_worst;
    gm_compare_tensor worst[GM_COMPARE_WORST]; /* that differ most, worst first             */
} gm_compare_result;

/* Reads a text with two models of one shape and vocabulary, whatever their types, and says how far
 * the second's answers are from the first's. */
gm_status gm_compare_run(const gm_model *a, const gm_model *b, const gm_compare_opts *opts,
                         gm_compare_result *out, gm_err *err);

/* ---- speed ----------------------------------------------------------------------------- */

/* What engine options come to on this machine. */
typedef struct gm_backend_info {
    uint32_t size;
    uint32_t n_threads;
    const char *name;    /* of the backend                                                     */
    const char *isa;     /* the best vector instructions that it uses: "c", "avx2", "avx512"   */
    const char *kv_type; /* of the KV cache                                                    */
    double read_gb_s;    /* the roof: 10^9 bytes read a second, at best; 0: not measured       */
    double int8_gop_s;   /* 10^9 int8 operations computed a second, at best; 0: not measured   */
    char device[256], driver[160]; /* of a device of its own; "" where the processor computes  */
} gm_backend_info;
/* Opens the backend, looks, and closes it. opts may be NULL. With measure 1 it also measures the
 * roof, which takes some 0.3 s and 256 MiB of memory, and a second on a GPU, whose clock has to rise. */
gm_status gm_backend_describe(const gm_engine_opts *opts, uint32_t measure, gm_backend_info *info,
                              gm_err *err);

/* Bytes that one decode step of `batch` sequences reads: every weight of a product once, and what
 * each sequence, `depth` tokens deep, sees of its KV cache of that type; 0 for an unknown type. */
double gm_model_step_size(const gm_model *m, const char *kv_type, uint32_t depth, uint32_t batch);
/* Operations in the products of a prompt of n tokens, of which the last one has logits. */
double gm_model_prompt_ops(const gm_model *m, uint32_t n);

/* One measurement: a prompt of `prompt` tokens read at once, or, where that is 0, `decode` tokens
 * for each of `batch` sequences; every sequence is `depth` tokens deep when a repetition begins. */
typedef struct gm_bench_opts {
    uint32_t size;
    uint32_t prompt, decode, depth, batch;
    uint32_t reps;  /* times it is done after a first one that warms up; the median counts     */
    uint32_t check; /* 1: compare the last row of logits of the first one with ref-int8's, of a GPU
                       with cpu's (slow) */
    gm_engine_opts engine;
    /* Told of each kind of kernel in one more step, those first that take most, or NULL. They are run
     * one after the other for that, with nothing overlapping; GM_E_UNSUP where a backend times none. */
    void (*kernel)(void *ctx, const gm_kernel_row *row);
    void *kernel_ctx;
} gm_bench_opts;
gm_bench_opts gm_bench_opts_default(void);

typedef struct gm_bench_result {
    uint32_t size;
    uint32_t n_threads;
    double tok_s;      /* tokens a second, all sequences together: embedding to drawn token    */
    double spread;     /* (fastest - slowest) / median of the repetitions                      */
    double gb_s;       /* bytes of weights and KV cache that this takes, a second: decode      */
    double gop_s;      /* 10^9 operations of its products a second: prompt                     */
    double roof_gb_s;  /* what the backend reads at best, measured between the repetitions     */
    double roof_gop_s; /* what it computes at best; 0: not measured                            */
    double check;      /* largest difference of a log-probability; -1: not checked             */
    uint64_t hash;     /* of the first one's last row of logits, of the first sequence         */
    uint64_t n_steps;  /* of the repetitions                                                   */
    gm_device_counts device; /* what they did on the device, all together; held: at the end */
    double host_us; /* from an answer to the next step handed over, on average              */
    double warm_s;  /* seconds that a GPU worked before: an idle one's clock is slow            */
    double
        load_gb_s; /* 10^9 bytes of the file brought to a device a second; 0: stay where they are */
    double up_gb_s; /* ... of a plain copy to it; 0: its memory is the host's                 */
    gm_load_times load_times;
} gm_bench_result;

/* Measures end to end, on a backend of its own with a context as long as needed. */
gm_status gm_bench_run(const gm_model *m, const gm_bench_opts *opts, gm_bench_result *out,
                       gm_err *err);

/* ---- tuning ---------------------------------------------------------------------------- */

typedef struct gm_tune_opts {
    uint32_t size;
    uint32_t seconds;  /* that may be spent, about; 0: as many as it takes                       */
    uint32_t max_ways; /* to try for each thing; 0: all                                          */
    uint32_t forget;   /* 1: all that was found out before is forgotten first                    */
    int (*row)(void *ctx, const gm_tune_row *row); /* told of each; anything but 0 cancels       */
    void *row_ctx;
    gm_engine_opts engine; /* as an engine has them                                              */
} gm_tune_opts;
gm_tune_opts gm_tune_opts_default(void);

typedef struct gm_tune_result {
    uint32_t size;
    uint32_t n, n_changed; /* rows, and those where another than the usual way was chosen        */
    char device[256];
} gm_tune_result;
/* Tries the kernels that a model would use on its device, with its own weights, and keeps what is
 * fastest in opts->engine.device_dir, for this device, driver and build: engines take it from there.
 * Where m is NULL nothing is tried, and row is told of what is kept, with two tries at most. On the
 * processor there is nothing to choose. */
gm_status gm_tune_run(const gm_model *m, const gm_tune_opts *opts, gm_tune_result *out,
                      gm_err *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
