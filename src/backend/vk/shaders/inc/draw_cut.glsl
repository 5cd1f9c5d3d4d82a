/* SPDX-License-Identifier: MIT */
// The cuts by top-k and top-p (steps 5 to 7 of plan/draw.h).

uint weight_of(float l, float first)
{
    precise const float x = (l - first) * slot.inv_temp;
    return gm_law_weight(x);
}

bool is_reached(bool weighted, uint64_t sum, uint64_t want)
{
    return weighted ? sum << 20 >= want : sum >= want;
}

// The key at which the sum over larger and equal keys reaches `want`: of counts, or of weights
// times 2^20. Only keys of at least `least` count. The sum over larger keys goes to `above`.
uint descend(bool weighted, uint64_t want, uint least, float first, out uint64_t above)
{
    uint prefix = 0;
    above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        barrier();
        for (uint d = gl_LocalInvocationIndex; d < 256; d += gl_WorkGroupSize.x)
            n_of[d] = low_of[d] = high_of[d] = 0;
        barrier();
        for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
            uint id;
            const float l = item(i, id);
            const uint k = key_of(l);
            if (k < least || (shift < 24 && k >> (shift + 8) != prefix)) continue;
            const uint d = k >> shift & 255;
            atomicAdd(n_of[d], 1);
            if (!weighted) continue;
            const uint w = weight_of(l, first);
            atomicAdd(low_of[d], w & 4095);
            atomicAdd(high_of[d], w >> 12);
        }
        barrier();
        for (uint d = gl_LocalInvocationIndex; d < 256; d += gl_WorkGroupSize.x) {
            uint64_t n = 0, sum = 0;
            for (uint e = 255; e > d; e--) {
                n += n_of[e];
                sum += weighted ? (uint64_t(high_of[e]) << 12) + low_of[e] : n_of[e];
            }
            const uint64_t before = above + sum;
            sum = before + (weighted ? (uint64_t(high_of[d]) << 12) + low_of[d] : n_of[d]);
            const bool is_first = n == 0 && above == 0;
            if (n_of[d] != 0 && is_reached(weighted, sum, want) &&
                (is_first || !is_reached(weighted, before, want))) {
                digit_found = d;
                above_found = before;
            }
        }
        barrier();
        prefix = prefix << 8 | digit_found;
        above = above_found;
    }
    return prefix;
}

uint count_at(uint key, uint id_last)
{
    uint n = 0;
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint id;
        if (key_of(item(i, id)) == key && id <= id_last) n++;
    }
    return wg_sum_uint(n);
}

// The id of the n-th token that has just this key.
uint id_of_nth(uint key, uint n)
{
    uint low = 0, high = p.n_vocab - 1;
    while (low < high) {
        const uint middle = (low + high) / 2;
        if (count_at(key, middle) >= n) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Lists what has a key of at least `least`, if it fits.
void list_from(uint least)
{
    barrier();
    if (gl_LocalInvocationIndex == 0) n_listed = 0;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint id;
        const float l = item(i, id);
        if (key_of(l) < least) continue;
        const uint at = atomicAdd(n_listed, 1);
        if (at < LIST) {
            list_id[at] = id;
            list_value[at] = l;
        }
    }
    barrier();
    if (n_listed > LIST) return;
    n_items = n_listed;
    listed = true;
}

// Weights of everything above the cut (key, ties), and of that many at it.
uint64_t total_weight(uint key, uint ties, float first)
{
    barrier();
    if (gl_LocalInvocationIndex == 0) low_of[0] = high_of[0] = 0;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint id;
        const float l = item(i, id);
        if (key_of(l) <= key) continue;
        const uint w = weight_of(l, first);
        atomicAdd(low_of[0], w & 4095);
        atomicAdd(high_of[0], w >> 12);
    }
    barrier();
    return (uint64_t(high_of[0]) << 12) + low_of[0] +
           (ties == 0 ? 0 : uint64_t(ties) * weight_of(key_value(key), first));
}

bool cuts()
{
    return (slot.top_k != 0 && slot.top_k < p.n_vocab) || slot.top_p < TOP_P_OFF;
}

// Steps 5 to 7: tokens with a larger key than the answer's x stay, and y of those that have it.
uvec2 cut(float first)
{
    uint key = key_of(NEGATIVE_INF), ties = 0;
    if (slot.top_k != 0 && slot.top_k < p.n_vocab) {
        uint64_t above;
        const uint at = descend(false, slot.top_k, 0, first, above);
        if (at > key) {
            key = at;
            ties = slot.top_k - uint(above);
            list_from(key);
        }
    }
    if (slot.top_p >= TOP_P_OFF) return uvec2(key, ties);
    uint64_t above;
    const uint64_t want = total_weight(key, ties, first) * slot.top_p;
    const uint at = descend(true, want, key + (ties == 0 ? 1 : 0), first, above);
    const uint64_t w = uint64_t(weight_of(key_value(at), first)) << 20;
    uint n = 1;
    if (above << 20 < want && w != 0) n = uint((want - (above << 20) + w - 1) / w);
    return uvec2(at, max(n, 1));
}
