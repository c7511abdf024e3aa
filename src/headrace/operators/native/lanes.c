/* The lanes of a batch for bitmaps, and the bit slices of its integers: the compiled form of `shared_aggregation.lanes`
   and `shared_aggregation.bit_slices`, whose numpy forms are the oracles. Loads and stores at any place are most of the
   work, so one instruction set is enough. */

#include "lanes.h"

#include <string.h>

enum { LANES = 64 };

/* Rows in the order of (cell, leading bits of the value), each cell from a new word on: a stable sort by counting. */
void headrace_lay(const Rows *rows, const int64_t *starts, uint32_t *restrict places, uint32_t *restrict row)
{
    int64_t cells = rows->cells, spare = rows->spare, shift = rows->shift;
    const int64_t *restrict codes = rows->codes, *restrict values = rows->values;
    memset(places, 0, ((size_t)cells << spare) * sizeof *places);
    for (int64_t i = 0; i < rows->count; i++) {
        uint64_t leading = values ? ((uint64_t)values[i] - (uint64_t)rows->low) >> shift : 0;
        places[(uint64_t)codes[i] << spare | leading]++;
    }
    for (int64_t cell = 0; cell < cells; cell++) {
        uint32_t place = (uint32_t)(starts[cell] * LANES);
        for (int64_t i = cell << spare; i < (cell + 1) << spare; i++) {
            uint32_t held = places[i];
            places[i] = place;
            place += held;
        }
    }
    for (int64_t i = 0; i < rows->count; i++) {
        uint64_t leading = values ? ((uint64_t)values[i] - (uint64_t)rows->low) >> shift : 0;
        row[places[(uint64_t)codes[i] << spare | leading]++] = (uint32_t)i;
    }
}

/* By lane the keys of rows. */
void headrace_pick(const uint16_t *restrict keys, const uint32_t *restrict row, int64_t lanes, uint16_t *restrict into)
{
    for (int64_t lane = 0; lane < lanes; lane++)
        into[lane] = keys[row[lane]];
}

static int64_t width_of(uint64_t number)
{
    return number ? 64 - __builtin_clzll(number) : 0;
}

/* By lane the integers less `least`, 0 where a lane is not valid; by word the lowest, and the bits of the greatest: of
   what exceeds the lowest, and as it is. */
void headrace_numbers(
    const int64_t *restrict values, const uint32_t *restrict row, const uint64_t *restrict valid, int64_t words,
    int64_t least, uint64_t *restrict numbers, uint64_t *restrict lowest, int64_t *restrict above, int64_t *restrict plain)
{
    for (int64_t word = 0; word < words; word++) {
        uint64_t low = UINT64_MAX, high = 0, there = valid[word];
        uint64_t *restrict into = numbers + word * LANES;
        const uint32_t *restrict from = row + word * LANES;
        if (there == UINT64_MAX) {
            for (int lane = 0; lane < LANES; lane++) {
                uint64_t number = (uint64_t)values[from[lane]] - (uint64_t)least;
                low = number < low ? number : low;
                high = number > high ? number : high;
                into[lane] = number;
            }
        } else {
            memset(into, 0, LANES * sizeof *into);
            for (; there; there &= there - 1) {
                int lane = __builtin_ctzll(there);
                uint64_t number = (uint64_t)values[from[lane]] - (uint64_t)least;
                low = number < low ? number : low;
                high = number > high ? number : high;
                into[lane] = number;
            }
        }
        low = low < high ? low : high; /* 0 of a word without valid lanes */
        lowest[word] = low;
        above[word] = width_of(high - low);
        plain[word] = width_of(high);
    }
}

/* Bit `bit` of 64 bytes as a word. */
static uint64_t gathered(const uint64_t bytes[8], int bit)
{
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= ((bytes[i] >> bit & 0x0101010101010101u) * 0x0102040810204080u >> 56) << (8 * i);
    return word;
}

/* The slices of numbers, less the base of their word unless `bases` is NULL: slices[bit * words + word]. */
void headrace_slices(
    const uint64_t *restrict numbers, const uint64_t *restrict bases, const uint64_t *restrict valid, int64_t words,
    int64_t bits, uint64_t *restrict slices)
{
    for (int64_t word = 0; word < words; word++) {
        uint64_t base = bases ? bases[word] : 0;
        for (int64_t low = 0; low < bits; low += 8) {
            uint64_t bytes[8];
            uint8_t each[LANES];
            for (int lane = 0; lane < LANES; lane++)
                each[lane] = (uint8_t)((numbers[word * LANES + lane] - base) >> low);
            memcpy(bytes, each, sizeof bytes);
            for (int64_t bit = low; bit < bits && bit < low + 8; bit++)
                slices[bit * words + word] = gathered(bytes, (int)(bit - low)) & valid[word];
        }
    }
}
