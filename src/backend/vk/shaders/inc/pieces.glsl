/* SPDX-License-Identifier: MIT */
// What a block's one or two pieces are multiplied with, as floats; all of them are exact.
#define PIECES (TWO_SCALES ? 2 : 1)

vec2 block_scales(Raw r)
{
    return block_d(r).x * vec2(block_sc(r));
}

vec2 block_mins(Raw r)
{
    return block_d(r).y * vec2(block_min(r));
}

// The law of a product on a device: pieces of a block, in order, are added to one of the row's
// running sums, each with one rounding where it is added. s is the dot product of codes less their
// zero, of_x the sum of the activation's codes.
float add_piece(float sum, float d, float m, float dx, float s, float of_x)
{
    precise const float scale = d * dx;
    sum = fma(scale, s, sum);
#if HAS_MIN
    precise const float y = dx * of_x;
    sum = fma(-m, y, sum);
#endif
    return sum;
}
