/* SPDX-License-Identifier: MIT */
#ifndef GEMMULE_H
#define GEMMULE_H

/* gemmule: Gemma 3 on your own machine.
 *
 * Three nouns. A *model* is an open model file: numbers, weights, vocabulary; it
 * never changes and many may be open. An *engine* is a model placed on a
 * backend, with memory for its context. A *request* is one answer being made:
 * token ids go in, events come out, each with a token and the text it completes.
 *
 *     gm_model *m;  gm_engine *e;  gm_request *r;  gm_event ev;  gm_ids ids = {0};
 *     gm_message hello = {"user", "Hello", 5};
 *     gm_model_open(&m, "gemma-3-1b-it.gguf", &err);
 *     gm_engine_open(&e, m, NULL, &err);
 *     gm_model_chat(m, &hello, 1, &ids, &err);
 *     gm_request_opts o = gm_request_opts_default(m);
 *     o.ids = ids.at;  o.n_ids = ids.n;
 *     gm_request_open(&r, e, &o, &err);
 *     while (gm_request_next(r, &ev, &err) == GM_OK && ev.kind == GM_EVENT_TOKEN)
 *         fwrite(ev.text, 1, ev.len, stdout);
 *
 * Functions that can fail return a gm_status and take a gm_err last, which may
 * be NULL; results go through the first parameter and are zero on failure. The
 * library never prints, never exits and never reads the environment. Structs of
 * options begin with their size, which gm_*_default fills in, so that programs
 * built against an older header go on working. Pointers in them are borrowed for
 * the call only, unless said otherwise. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The shared library exports what is declared in here, and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define GM_VERSION "0.1.0"
/* The version of the library that runs, to compare with GM_VERSION, that of the header. */
const char *gm_version(void);

/* ---- failure ------------------------------------------------------------------------- */

typedef int32_t gm_status;
enum {
    GM_OK = 0,
    GM_E_ARG,    /* the caller broke a contract                              */
    GM_E_IO,     /* the system refused: err.os is errno                      */
    GM_E_FORMAT, /* bytes from outside are not what they should be           */
    GM_E_NOMEM,  /* no host memory                                           */
    GM_E_DEVMEM, /* the device refused an allocation; the backend lives on   */
    GM_E_LOST,   /* the device is gone                                       */
    GM_E_BUSY,   /* queue or pages are full: try again later                 */
    GM_E_TOOBIG, /* can never fit; the sentence has both numbers             */
    GM_E_CANCEL, /* was told to stop                                         */
    GM_E_UNSUP,  /* understood, and not supported                            */
};

typedef struct gm_err {
    int32_t code;  /* gm_status                                       */
    int32_t os;    /* errno or VkResult, 0 where neither applies      */
    char msg[496]; /* one sentence, no newline, safe to show          */
} gm_err;

/* Told now and then by what takes long, on the thread that called it: bytes done, and of how many.
 * It answers 0 to go on; anything else cancels, and the call fails with GM_E_CANCEL. */
typedef int (*gm_progress_fn)(void *ctx, uint64_t done, uint64_t total);

/* ---- model --------------------------------------------------------------------------- */

typedef struct gm_model gm_model;

/* Opens a GGUF file (the first part of a split one) or a Hugging Face folder. The file stays
 * mapped until close and must not be changed meanwhile. */
gm_status gm_model_open(gm_model **out, const char *path, gm_err *err);
void gm_model_close(gm_model *m); /* NULL is fine; after every engine of it is closed */

typedef struct gm_model_info {
    uint32_t size; /* sizeof(gm_model_info), filled in by the caller                   */
    uint32_t n_layer;
    uint32_t n_vocab;
    uint32_t n_ctx;       /* positions the model was made for                                 */
    uint64_t vocab_hash;  /* equal for models that share a vocabulary                         */
    uint64_t weight_size; /* bytes of the text model's weights                                */
    const char *name;     /* what the file calls itself, or ""; valid until close             */
    const char *arch;     /* "gemma3"                                                         */
    const char *note;     /* a warning to show with every answer, or "" (random weights)      */
} gm_model_info;
void gm_model_describe(const gm_model *m, gm_model_info *info);

/* ---- text ---------------------------------------------------------------------------- */

/* A growing list of token ids; all-zero is an empty one. */
typedef struct gm_ids {
    int32_t *at;
    size_t n, cap;
} gm_ids;
void gm_ids_deinit(gm_ids *ids);

enum {
    GM_TOKENIZE_BOS = 1,     /* begin with the beginning-of-text token                        */
    GM_TOKENIZE_SPECIAL = 2, /* "<start_of_turn>" and its kind become control tokens; without
                                this they are plain text, so that nobody's text can forge one */
};
/* Appends the ids of len bytes of text; bytes that are not UTF-8 count as U+FFFD. */
gm_status gm_model_tokenize(const gm_model *m, const char *text, size_t len, uint32_t flags,
                            gm_ids *out, gm_err *err);

typedef struct gm_message {
    const char *role; /* "system", "user", "assistant" or "model" */
    const char *text;
    size_t len;
} gm_message;
/* Appends the ids of a conversation in Gemma's chat format, up to where the model answers. */
gm_status gm_model_chat(const gm_model *m, const gm_message *messages, size_t n, gm_ids *out,
                        gm_err *err);

/* A growing run of bytes; all-zero is an empty one. The bytes are followed by a NUL. */
typedef struct gm_text {
    char *p;
    size_t len, cap;
} gm_text;
void gm_text_deinit(gm_text *t);

enum {
    GM_DETOKENIZE_SPECIAL = 1, /* control tokens come out as they are spelled, else as nothing  */
    GM_DETOKENIZE_BYTES = 2,   /* the tokens' own bytes, else always UTF-8: bytes that are none
                                  become U+FFFD                                                 */
};
/* Appends the text of n token ids. Ids outside the vocabulary are refused. */
gm_status gm_model_detokenize(const gm_model *m, const int32_t *ids, size_t n, uint32_t flags,
                              gm_text *out, gm_err *err);

/* 1 for a token that ends an answer, else 0. */
int32_t gm_model_ends(const gm_model *m, int32_t id);

/* The piece of a token id as the vocabulary spells it; not NUL-terminated, valid until close.
 * *len is 0 and the answer "" for ids outside the vocabulary. */
const char *gm_model_piece(const gm_model *m, int32_t id, size_t *len);

/* ---- engine -------------------------------------------------------------------------- */

typedef struct gm_engine gm_engine;
#define GM_WHY_LEN 496

typedef struct gm_engine_opts {
    uint32_t size;
    uint32_t n_ctx;      /* positions of one request; 0: the model's, at most 4096             */
    uint32_t n_slots;    /* requests that run at once; 0: 1                                    */
    uint32_t n_threads;  /* 0: one a physical core                                             */
    const char *backend; /* "auto" (also NULL), or a name that gm_backend_name lists           */
    const char *kv_type; /* "f32", "f16" or "q8_0"; NULL: f16, and f32 on the ref backends     */
    const char *isa;     /* the best vector instructions to use: "c", "avx2", "avx512"; NULL: all */
    gm_progress_fn progress; /* while a device's kernels are checked and made, with no or all bytes
                                done, and weights loaded in between; NULL: nobody listens */
    void *progress_ctx;
    const char *device; /* of the backend: its number, or a part of its name; NULL: the best    */
    uint32_t cache; /* 1: what requests have computed is kept for others after they are closed */
    /* A folder in which the cache outlives the engine, or NULL; until close. It is made if need be;
     * one that cannot be, or may not be written, is refused before the weights are loaded. */
    const char *cache_dir;
    uint64_t
        memory; /* bytes for weights, KV cache and scratch together; 0: as much as n_slots need */
    void (*note)(void *ctx, const char *text); /* told what went wrong and ends no request, or
                                                  NULL; any thread */
    void *note_ctx;
    uint32_t max_queue; /* requests that may wait for a slot, then GM_E_BUSY; 0: any number    */
    const char *device_dir; /* a folder in which what a device's driver compiled, and that it is
                               right, outlive the engine, or NULL; until close */
    uint32_t verbose; /* 1: note is also told of files in device_dir that were of no use       */
    uint32_t untuned; /* 1: a GPU's kernels are the usual ones, and none are tried              */
    uint32_t exact;   /* 1: prompts have the bits that one token after the other has, as they always
                         do but on GPUs with float16 matrices, where it is slower              */
    const char *choices; /* a file with the kernels of a GPU, in lines as gemmule tune --show prints
                            them, or NULL: others are then the usual ones, and none are tried  */
    gm_progress_fn trying;   /* while a GPU's kernels are tried, with progress_ctx; NULL: nobody */
    gm_progress_fn checking; /* while a device's are checked, with progress_ctx; NULL: progress  */
} gm_engine_opts;
gm_engine_opts gm_engine_opts_default(void);

/* Places the model on a backend and starts the engine's thread. opts may be NULL. The model must
 * outlive the engine. A device is tried first, for a moment, with ops of the model's types: where one
 * is wrong, "auto" takes cpu, and a backend that was named is refused. With opts->device_dir that is
 * done once for each device, driver and build; there a GPU's kernels are also tried for some 3 s, the
 * first time with a model of these shapes, and the fastest taken from then on. */
gm_status gm_engine_open(gm_engine **out, const gm_model *m, const gm_engine_opts *opts,
                         gm_err *err);
/* Cancels what runs and joins the thread; every request must be closed before. NULL is fine. */
void gm_engine_close(gm_engine *e);

/* The name of the i-th backend, NULL past the last; with a line about it, which is "not in this build"
 * where it was left out. */
const char *gm_backend_name(size_t i, const char **about);
/* What "auto" comes to for this model and these options (which may be NULL): vulkan where a GPU is
 * there and has the memory, else cpu; with the reason. Another backend is answered as it is, with "". */
const char *gm_backend_choose(const gm_model *m, const gm_engine_opts *opts, char why[GM_WHY_LEN]);
/* The backend that this engine runs on; the device that it has there, "" where the processor computes;
 * and why that backend where "auto" chose it, else "". */
const char *gm_engine_backend(const gm_engine *e);
const char *gm_engine_device(const gm_engine *e);
const char *gm_engine_why(const gm_engine *e);
/* Positions that one request may take. */
uint32_t gm_engine_ctx(const gm_engine *e);

/* A pool of a device's memory, as its driver tells it. */
typedef struct gm_device_heap {
    uint64_t bytes, free; /* in all, and what a process may take now (all, where nobody knows) */
    uint32_t local;       /* 1: the device's own                                               */
    uint32_t mapped;      /* 1: the host reads and writes it in place                          */
} gm_device_heap;

/* What an op runs with there, and why. */
typedef struct gm_device_kernel {
    const char *op, *kernel;
    char why[96];
} gm_device_kernel;

#define GM_DEVICE_HEAPS   16
#define GM_DEVICE_KERNELS 16
typedef struct gm_device_info {
    uint32_t size;
    uint32_t index;   /* what --device takes, as it takes a part of the name                    */
    const char *kind; /* "discrete", "integrated", "virtual", "cpu", "other"                    */
    char name[256], driver[160];
    char why_not[496];  /* a sentence if it cannot be used, else ""                             */
    char features[200]; /* words with commas between them                                       */
    uint64_t max_alloc; /* bytes of one allocation                                              */
    uint32_t n_heaps, n_kernels;
    gm_device_heap heaps[GM_DEVICE_HEAPS];
    gm_device_kernel kernels[GM_DEVICE_KERNELS];
} gm_device_info;
/* The i-th device of a backend; GM_E_ARG past the last, and where a backend has none to choose from;
 * GM_E_UNSUP with the reason where the machine has nothing that such a backend needs. */
gm_status gm_device_describe(const char *backend, uint32_t index, gm_device_info *info,
                             gm_err *err);

/* One try of a self-test: an op at one size of step, beside the exact reference. */
typedef struct gm_selftest_row {
    const char *op;      /* "matmul"; "layer": a whole one, whose ops share kernels           */
    const char *type;    /* number format of the weights; of an attend alone, of the KV cache */
    uint32_t rows;       /* of a step                                                         */
    const char *kernels; /* that ran, with their constants: "matmul.q4_0:128,1,1" ...; until
                            the call returns; "" where a backend's have no names              */
    double worst, bound; /* of |difference| over the largest value; infinite: not a number    */
    uint32_t ok;
    const char *why; /* the sentence, where it could not be run, else ""                      */
} gm_selftest_row;

typedef struct gm_selftest_opts {
    uint32_t size;
    const char *type; /* only this number format; NULL: all that there are                    */
    int (*row)(void *ctx, const gm_selftest_row *row); /* told of each; anything but 0 cancels */
    void *row_ctx;
    gm_engine_opts engine; /* backend (NULL, "auto": vulkan), device, device_dir and the like  */
} gm_selftest_opts;
gm_selftest_opts gm_selftest_opts_default(void);

typedef struct gm_selftest_result {
    uint32_t size;
    uint32_t n, n_failed; /* rows               */
    char device[256];     /* its name, or ""    */
} gm_selftest_result;
/* Runs every kernel that models would use on this device, driver and build. A kernel that is wrong
 * is no failure of this function; engines do not run on such a device (gm_engine_open). */
gm_status gm_selftest_run(const gm_selftest_opts *opts, gm_selftest_result *out, gm_err *err);

/* One way to compute something: a kernel and its constants, and what it took. */
typedef struct gm_tune_try {
    const char *kernel; /* "matmul:128,1,1,4": until the call returns */
    double us;          /* at best, of several times                  */
} gm_tune_try;

/* Something that a model computes on a device, and the ways that were tried: all have the same bits. */
typedef struct gm_tune_row {
    const char *what;         /* "q4_0 21504x5376, gate and up, 8 rows"                          */
    const gm_tune_try *tries; /* [n_tries]; the first is what is taken where nothing was tried   */
    uint32_t n_tries, chosen;
} gm_tune_row;

/* A kind of kernel in a step on a device. */
typedef struct gm_kernel_row {
    char what[64]; /* "ffn_gate, ffn_up": the weights that it multiplies with, or what it does */
    const char *kernel; /* "matmul.q4_0"                                                       */
    uint32_t n;         /* how many of it the step has                                         */
    double us;          /* microseconds that they take, all together                           */
    double bytes;       /* of weights and KV cache that they read; 0: of neither               */
} gm_kernel_row;

/* What was done on a device since it was opened; all 0 where a backend has none. Setting up may do
 * anything; a step allocates, compiles and records nothing. */
typedef struct gm_device_counts {
    uint64_t allocs, pipelines, recordings;
    uint64_t submits, dispatches, barriers;
    uint64_t bytes_up, bytes_down;  /* to the device and from it */
    uint64_t held[GM_DEVICE_HEAPS]; /* bytes of each of its heaps, now */
    uint64_t
        cached; /* of the pipelines, those that the driver found in gm_engine_opts.device_dir */
} gm_device_counts;

/* Where the time went when weights were brought to a device; all 0 where they stay. Shares are of the
 * time of all threads that lay weights out; what is missing to 1, they had nothing to do. */
typedef struct gm_load_times {
    double memory_s; /* until the device had given its memory                          */
    double stage_s;  /* ... and the host what it is fed through; 0: its memory is the host's */
    double layout;   /* laying weights out, and waiting for the file's bytes if need be */
    double others;   /* waiting for each other                                         */
    double bus;      /* waiting until the device had fetched what was laid out         */
} gm_load_times;

#define GM_BATCH_SIZES 11
/* What the engine does now, and what it has done since it was opened. */
typedef struct gm_engine_stats {
    uint32_t size;
    uint32_t n_slots, n_running, n_queued;
    uint32_t n_parked; /* those whose reader is behind: running, or set aside for others  */
    uint32_t pages[2]; /* of the KV cache: for global layers, for local ones              */
    uint32_t pages_used[2];
    uint64_t n_steps;
    uint64_t batch[GM_BATCH_SIZES]; /* steps with 1, 2, 3 to 4, 5 to 8 .. 513 to 1024 sequences */
    uint64_t n_sequences;           /* summed over the steps                                   */
    uint64_t n_prompt, n_cached, n_answer; /* tokens: computed of prompts, taken over, drawn    */
    uint64_t n_lookups, n_hits, n_evicted; /* requests begun, those that took something over;
                                              beginnings that had to go                         */
    uint32_t n_kept;                       /* beginnings kept of finished requests              */
    uint64_t kv_size;                      /* bytes of the KV cache                             */
} gm_engine_stats;
/* Any thread. */
void gm_engine_stat(gm_engine *e, gm_engine_stats *out);

/* ---- request ------------------------------------------------------------------------- */

typedef struct gm_request gm_request;

typedef struct gm_bias {
    int32_t id;
    float bias; /* added to the token's logit */
} gm_bias;

#define GM_TEMPERATURE_MAX 100

/* How a token is drawn. The same options, seed and prompt give the same text alone, in a crowd and
 * after a restart. */
typedef struct gm_sampling {
    float temperature;       /* 0: always the likeliest token; at most GM_TEMPERATURE_MAX        */
    float top_p;             /* 1: off                                                           */
    float min_p;             /* 0: off                                                           */
    float repeat_penalty;    /* 1: off; divides logits of tokens in the prompt or the answer     */
    float frequency_penalty; /* 0: off; times how often the answer has the token              */
    float presence_penalty;  /* 0: off; for every token that the answer has                   */
    uint32_t top_k;          /* 0: off                                                           */
    uint32_t n_bias;
    const gm_bias *bias;
    uint64_t seed;
} gm_sampling;

enum {
    GM_REQUEST_HASH = 1,       /* events carry a hash of the logits they came from             */
    GM_REQUEST_IGNORE_END = 2, /* the tokens that end an answer are never drawn                */
    GM_REQUEST_PROMPT = 4,     /* the prompt's tokens come as events too, from the second on   */
    GM_REQUEST_NO_ANSWER = 8,  /* ends where the answer would begin                            */
    GM_REQUEST_ALONG = 16,     /* belongs to one that was let in: no queue is too full for it  */
};

typedef struct gm_request_opts {
    uint32_t size;
    uint32_t max_tokens; /* 0: until the model ends or the context is full               */
    const int32_t *ids;  /* the prompt                                                   */
    size_t n_ids;
    gm_sampling sampling;
    uint32_t flags; /* GM_REQUEST_* */
    uint32_t n_top; /* candidates to report with each token, 0 to the vocabulary's size */
    uint32_t n_stop;
    const char *const *stop; /* the answer ends before the first of these                    */
    /* Called whenever there is news for gm_request_poll, or NULL. It is the engine's thread that
     * calls, and everybody waits for it: set a flag, wake somebody, call nothing of this library. */
    void (*wake)(void *ctx);
    void *wake_ctx;
    /* Requests with the same pointer, which is not NULL, count as one to the queue. They have half of the
     * slots at most; together with those of other pointers they leave one, if there are two; and where
     * one of them runs, more begin when nobody else waits. NULL: it is alone. */
    const void *group;
} gm_request_opts;
/* The model file's own sampling defaults where it has them, else Gemma's 1.0 / 64 / 0.95; seed 0. */
gm_request_opts gm_request_opts_default(const gm_model *m);

/* Queues a request. Any thread; the options are copied. GM_E_TOOBIG when the prompt does not fit,
 * GM_E_BUSY when the queue is full. */
gm_status gm_request_open(gm_request **out, gm_engine *e, const gm_request_opts *opts, gm_err *err);
/* What of these options gm_request_open would refuse. Any thread. */
gm_status gm_request_check(const gm_engine *e, const gm_request_opts *opts, gm_err *err);

enum { GM_EVENT_NONE = 0, GM_EVENT_TOKEN = 1, GM_EVENT_END = 2, GM_EVENT_PROMPT = 3 };
enum { GM_END_STOP = 1, GM_END_LENGTH = 2, GM_END_CANCEL = 3 };

typedef struct gm_candidate {
    int32_t id;
    float logprob; /* natural logarithm, before temperature and penalties */
} gm_candidate;

typedef struct gm_event {
    int32_t kind;     /* GM_EVENT_*                                                   */
    int32_t id;       /* TOKEN: the token drawn; PROMPT: the prompt's                 */
    float logprob;    /* TOKEN, PROMPT: its log-probability                           */
    int32_t reason;   /* END: GM_END_*                                                */
    const char *text; /* whole UTF-8 characters, maybe none; valid until the next call */
    size_t len;
    const gm_candidate
        *top; /* TOKEN, PROMPT: the likeliest tokens, best first; until the next call */
    uint32_t n_top;
    uint32_t n_prompt; /* tokens of the prompt                                         */
    uint32_t n_cached; /* of these, how many another request had computed already */
    uint32_t n_answer; /* tokens of the answer so far                                  */
    double queue_s;    /* seconds it waited for a slot                                 */
    double prefill_s;  /* seconds the prompt took                                      */
    double decode_s;   /* seconds since then                                           */
    uint64_t hash;     /* of the row of logits, where asked for: the same run, the same hash */
} gm_event;

/* Waits for the next event of this request. Who takes none for a second while others wait for a
 * slot is set aside, and goes on when it takes some. One thread a request. After GM_EVENT_END, or a failure,
 * the same answer comes again. */
gm_status gm_request_next(gm_request *r, gm_event *ev, gm_err *err);

/* The same without waiting: ev->kind is GM_EVENT_NONE when there is nothing new, with counts and times
 * as they are now; prefill_s is 0 then for as long as the request waits for a slot. */
gm_status gm_request_poll(gm_request *r, gm_event *ev, gm_err *err);

/* Asks the engine to stop this request soon; it then ends with GM_END_CANCEL. Any thread, and from
 * a signal handler too. */
void gm_request_cancel(gm_request *r);

/* Cancels if need be, waits until the engine has let go of it, and frees; NULL is fine. */
void gm_request_close(gm_request *r);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
