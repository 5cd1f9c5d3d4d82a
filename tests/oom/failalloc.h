/* SPDX-License-Identifier: MIT */
#ifndef GM_TESTS_FAILALLOC_H
#define GM_TESTS_FAILALLOC_H

/* Every allocation failed in turn.
 *
 * failalloc.c defines malloc and its kin for the whole process, so the allocations
 * of libraries fail too, and hands them on to the sanitizer or libc. Whatever
 * thread asks is counted. */

#include "gemmule.h"

/* Something that allocates, and frees all of it whether it succeeds or not. What it makes when it
 * answers GM_OK it checks itself. */
typedef gm_status oom_run(gm_err *err);

/* Runs it once undisturbed, then with its first allocation failing, then its second and so on until
 * a run meets no failure; then the same with all later allocations failing too. Asserts (cmocka)
 * that each run frees what it took and that a failure is reported as one: GM_E_NOMEM, or GM_E_IO
 * where the system says so. A run may also succeed, where the caller of malloc has a way around.
 *
 * jansson's lexer does not say why it gives up, so that its GM_E_FORMAT is accepted; how often that
 * happened is printed. */
void oom_sweep(const char *what, oom_run *run);

/* Blocks in use, the whole process's. */
long long oom_live(void);
/* Allocations that the process has asked for since it began, whatever became of them. */
long long oom_ever(void);

#endif
