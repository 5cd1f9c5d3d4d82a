/* SPDX-License-Identifier: MIT */
// Functions that devices round in their own ways, spelled so that all get the same bits.

// exp, to about 1e-7 of its value; 0 below -87, infinite above 88.7.
float gm_exp(float x)
{
    if (!(x > -87.0)) return isnan(x) ? x : 0.0;
    if (x > 88.7) return uintBitsToFloat(0x7f800000u);
    precise const float whole = floor(x * 1.44269502 + 0.5);
    precise const float z = (x - whole * 0.693359375) + whole * 2.12194440e-4;
    precise float p = 1.98756912e-4;
    p = p * z + 1.39819994e-3;
    p = p * z + 8.33345205e-3;
    p = p * z + 4.16657962e-2;
    p = p * z + 1.66666657e-1;
    p = p * z + 5.00000012e-1;
    p = p * z * z + z + 1.0;
    const int n = int(whole);
    const int half_n = n / 2; // 2^128 does not fit in one factor
    return p * uintBitsToFloat(uint(half_n + 127) << 23) *
           uintBitsToFloat(uint(n - half_n + 127) << 23);
}

float gm_tanh(float x)
{
    const float a = abs(x);
    if (a < 0.01) {
        precise const float s = x * x;
        return x * (1.0 - s * (0.333333343 - s * 0.133333340));
    }
    precise const float t = 1.0 - 2.0 / (gm_exp(2.0 * a) + 1.0);
    return x < 0 ? -t : isnan(x) ? x : t;
}

float gm_gelu(float z)
{
    precise const float inner = 0.797884583 * (z + 0.044715 * z * z * z);
    return 0.5 * z * (1.0 + gm_tanh(inner));
}

// cos and sin of a part of a turn, in 2^-32ths of it.
vec2 gm_cos_sin(uint turn)
{
    // The nearest quarter turn, and what is left in [-1/8, 1/8] of a turn.
    const uint quarter = (turn + 0x20000000u) >> 30;
    precise const float x = float(int(turn - (quarter << 30))) * 1.46291808e-9;
    precise const float s2 = x * x;
    precise float s = -1.95152959e-4;
    s = s * s2 + 8.33216087e-3;
    s = s * s2 - 1.66666546e-1;
    s = s * s2 * x + x;
    precise float c = 2.44331571e-5;
    c = c * s2 - 1.38873162e-3;
    c = c * s2 + 4.16666457e-2;
    c = c * s2 * s2 - 0.5 * s2 + 1.0;
    const vec2 r = (quarter & 1) != 0 ? vec2(-s, c) : vec2(c, s);
    return (quarter & 2) != 0 ? -r : r;
}

// float16 bits of x, to nearest even: packHalf2x16 may round as it likes, and compilers take a
// rounding to float16 and back for none.
uint gm_half(float x)
{
    const uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u;
    if (a >= 0x477ff000u) return sign | 0x7c00u;
    const int cut = max(13, 126 - int(a >> 23)); // bits that fall off; more where h is not normal
    if (cut > 25) return sign;
    const uint m = (a & 0x7fffffu) | 0x800000u;
    const uint rest = m & ((1u << cut) - 1), half_unit = 1u << (cut - 1);
    uint h = m >> cut;
    if (rest > half_unit || (rest == half_unit && (h & 1) != 0)) h++;
    // A normal h has its leading 1 in the exponent's place, which counts it.
    return sign | (cut == 13 ? ((a >> 23) - 113 << 10) + h : h);
}

// Four values as float16: what is too large is the largest there is, and NaN stays what it is.
uvec2 gm_halves(vec4 x)
{
    x = mix(x, clamp(x, -65504.0, 65504.0), greaterThan(abs(x), vec4(65504.0)));
    return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw));
}
