/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_SESSION_H
#define GM_PROGRAMS_SESSION_H

/* What the commands that use a model share: the options that name it, the prompt,
 * and one request at a time. The gm_*_rows are tables for gm_arggroup; the struct
 * beside each is where its values go. Functions that answer an int answer an exit
 * code, and have said what is wrong where it is not GM_EXIT_OK. */

#include "args.h"
#include "gemmule.h"
#include "gemmule_tools.h"
#include "output.h"

/* ---- options ------------------------------------------------------------------------- */

typedef struct gm_model_args {
    const char *path;
} gm_model_args;
extern const gm_argrow gm_model_rows[];

typedef struct gm_general_args {
    bool json, verbose, help;
} gm_general_args;
extern const gm_argrow gm_general_rows[];

typedef struct gm_engine_args {
    const char *backend, *device, *kv_type, *isa;
    gm_argnum ctx, threads;
    const char *tune;
    bool exact;
} gm_engine_args;
extern const gm_argrow gm_engine_rows[];
/* The same without --ctx, for a command whose context follows from something else. */
#define GM_ENGINE_ROWS_NO_CTX (gm_engine_rows + 1)
/* With the user's cache folder for what is found out about devices, and notes that are said. */
gm_engine_opts gm_engine_args_opts(const gm_engine_args *args, const gm_general_args *general);
/* A gm_engine_opts.note that says it. */
void gm_session_note(void *ctx, const char *text);
/* Refuses more threads than could ever help: they would wait for each other. */
int gm_threads_check(const gm_command *cmd, const gm_argnum *threads);
int gm_engine_args_check(const gm_command *cmd, const gm_engine_args *args);

/* How text without the chat format becomes tokens. */
typedef struct gm_text_args {
    bool no_bos, no_special;
} gm_text_args;
extern const gm_argrow gm_text_rows[];
uint32_t gm_text_flags(const gm_text_args *args);

/* ---- the prompt ---------------------------------------------------------------------- */

/* The words with blanks between them; all of standard input when there is no word, and behind the
 * words and an empty line when the last of them is "-". A first word that names a model is refused
 * where no model is given. Free the bytes with gm_bytes_free. */
int gm_prompt_read(const gm_command *cmd, const gm_words *words, const gm_model_args *model,
                   gm_bytes *out);

/* All of a file, or of standard input where the path is "-". */
int gm_text_read(const char *path, gm_bytes *out);

/* ---- a model at work ----------------------------------------------------------------- */

/* All-zero is a closed one. */
typedef struct gm_session {
    const char *path; /* the one given, or bundled */
    char *bundled;
    gm_model *model;
    gm_model_info info;
    gm_engine_opts opts; /* what the engine was started with */
    gm_engine *engine;
    gm_backend_info roof; /* once it was measured; all-zero before */
    gm_request *request;
    gm_request *before; /* the last one, kept so that the next may share its beginning */
    gm_ids ids;         /* the prompt's */
    uint64_t hash;      /* of the logits of the last request, where it asked for that */
    bool noted;         /* the model's note has been said */
} gm_session;

/* Opens the model that -m names, or else the one that comes with gemmule. */
int gm_session_open(gm_session *s, const gm_model_args *args);
/* Whether the CPU's cache has room for all weights, so that they are hardly read from memory. */
bool gm_session_cached(const gm_session *s);
/* Starts an engine for it, behind a bar; answers GM_EXIT_INTERRUPTED after a Ctrl-C. */
int gm_session_start(gm_session *s, const gm_engine_args *args, const gm_general_args *general);
/* Measures the roof that speeds are compared with, the first time, which takes some 0.3 s. Where
 * that fails it says so, and the roof stays unknown. */
void gm_session_measure(gm_session *s);
/* What it runs on: "vulkan on DEVICE"; without a device "cpu", and why where nobody said. */
#define GM_SESSION_BACKEND_LEN (GM_WHY_LEN + 32)
const char *gm_session_backend(const gm_session *s, char text[GM_SESSION_BACKEND_LEN]);
/* Tells it. */
void gm_session_say_backend(const gm_session *s);
/* Appends the tokens of a text to s->ids. */
int gm_session_tokenize(gm_session *s, const gm_bytes *text, uint32_t flags);
/* Starts a request, which Ctrl-C cancels; the first time, says the model's note. */
int gm_session_ask(gm_session *s, const gm_request_opts *opts);
/* The next event; folds its hash of logits into s->hash. */
int gm_session_next(gm_session *s, gm_event *ev);
/* Ends the request; answers GM_EXIT_INTERRUPTED after a Ctrl-C. */
int gm_session_end(gm_session *s);
void gm_session_close(gm_session *s);

/* A token as JSON {"id":..,"piece":..}; its piece in quotes, as the end of a line. Blanks are
 * pieces too, and are seen only between quotes. */
json_t *gm_session_json_token(const gm_session *s, int32_t id);
void gm_session_out_piece(const gm_session *s, int32_t id);

#endif
