#version 460
/* SPDX-License-Identifier: MIT */
// What a step changes before its rows: slots that begin anew, counts and page tables (workgroup 0),
// and page copies (the others, each its own stretch of every page: copies keep their order).
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"

layout(push_constant, std430) uniform Push { gm_vk_apply p; };

struct SlotSet {
    uint slot, bias_first, n_bias;
    uint draw[10];
};
struct CountEdit {
    uint slot;
    int id, prompt, answer;
};
struct PageEdit {
    uint slot, class_of, index, page;
};
struct PageCopy {
    uint class_of, from, to;
};
#define ENTRIES(NAME, ENTRY) \
    layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer NAME { ENTRY v[]; }
ENTRIES(Sets, SlotSet);
ENTRIES(Counts, CountEdit);
ENTRIES(Edits, PageEdit);
ENTRIES(Copies, PageCopy);
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Tables { uint64_t v[]; };

#define SLOT_WORDS 16 /* of gm_vk_slot; the draw begins at word 4 */

void set_slot(SlotSet s)
{
    const uint t = gl_LocalInvocationIndex, at = s.slot * SLOT_WORDS;
    if (t < 10) WU1(p.slots).v[at + 4 + t] = s.draw[t];
    if (t == 0) {
        WU1(p.slots).v[at] = 0xffffffffu;
        WU1(p.slots).v[at + 1] = s.n_bias;
        const bool on = uintBitsToFloat(s.draw[4]) != 1 || uintBitsToFloat(s.draw[6]) != 0 ||
                        uintBitsToFloat(s.draw[7]) != 0;
        WU1(p.slots).v[at + 2] = on ? 1 : 0;
    }
    for (uint i = t; i < s.n_bias; i += gl_WorkGroupSize.x)
        WU2(p.bias_table).v[s.slot * p.max_bias + i] = U2(p.biases).v[s.bias_first + i];
    for (uint i = t; i < p.n_vocab; i += gl_WorkGroupSize.x)
        WU1(p.count_table).v[s.slot * p.n_vocab + i] = 0;
}

// Adds to both halves of a count, each staying within 16 bits. Edits of one token follow each other
// in order, so each invocation has the tokens of its own remainder.
void edit_counts(uint n)
{
    for (uint i = 0; i < n; i++) {
        const CountEdit e = Counts(p.counts).v[i];
        if (uint(e.id) % gl_WorkGroupSize.x != gl_LocalInvocationIndex) continue;
        const uint at = e.slot * p.n_vocab + uint(e.id), c = WU1(p.count_table).v[at];
        const int prompt = clamp(int(c & 0xffff) + e.prompt, 0, 0xffff);
        const int answer = clamp(int(c >> 16) + e.answer, 0, 0xffff);
        WU1(p.count_table).v[at] = uint(prompt) | uint(answer) << 16;
    }
}

void edit_pages(uint n)
{
    for (uint i = 0; i < n; i++) {
        const PageEdit e = Edits(p.edits).v[i];
        if (e.index % gl_WorkGroupSize.x != gl_LocalInvocationIndex) continue;
        const uint64_t page =
            e.page == 0xffffffffu ? 0 : A1(p.pages).v[e.class_of * p.n_pages_local + e.page];
        Tables(p.tables).v[(e.slot * 2 + e.class_of) * p.table_len + e.index] = page;
    }
}

void copy_pages(uint n)
{
    const uint n_wgs = gl_NumWorkGroups.x - 1, wg = gl_WorkGroupID.x - 1;
    for (uint i = 0; i < n; i++) {
        const PageCopy c = Copies(p.copies).v[i];
        const uint64_t from = A1(p.pages).v[c.class_of * p.n_pages_local + c.from];
        const uint64_t to = A1(p.pages).v[c.class_of * p.n_pages_local + c.to];
        const uint size = p.page_size[c.class_of];
        for (uint j = wg * gl_WorkGroupSize.x + gl_LocalInvocationIndex; j < size;
             j += n_wgs * gl_WorkGroupSize.x)
            WU4(to).v[j] = WU4(from).v[j];
    }
}

void main()
{
    const gm_vk_head h = Head(p.head).v;
    if (gl_WorkGroupID.x > 0) {
        copy_pages(h.n_copies);
        return;
    }
    for (uint i = 0; i < h.n_sets; i++) {
        set_slot(Sets(p.sets).v[i]);
        memoryBarrierBuffer();
        barrier();
    }
    edit_counts(h.n_counts);
    edit_pages(h.n_edits);
}
