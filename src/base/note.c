/* SPDX-License-Identifier: MIT */
#include "base/note.h"

#include <stdarg.h>
#include <stdio.h>

void gm_note_tell(const gm_note *n, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (!n->tell) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    n->tell(n->ctx, text);
}
