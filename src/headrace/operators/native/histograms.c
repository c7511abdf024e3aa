/* Rows by the rank of an attribute and their cell: the compiled form of what `shared_aggregation.histograms` counts and adds up. */

#include "histograms.h"

static inline int64_t place_of(const Ranked *rows, int64_t row)
{
    uint32_t rank = rows->table ? rows->table[rows->keys[row]] : rows->ranks[row];
    return (int64_t)rank * rows->cells + rows->codes[row];
}

/* How many valid rows each (rank, cell) has. */
void headrace_count(const Ranked *rows, int64_t *restrict counts)
{
    for (int64_t row = 0; row < rows->count; row++)
        counts[place_of(rows, row)] += rows->valid ? rows->valid[row] : 1;
}

/* Their sums, which wrap around; with `high`, of the lower 32 bits of each number, and there of the others. */
void headrace_sum(const Ranked *rows, const int64_t *restrict values, uint64_t *restrict low, uint64_t *restrict high)
{
    for (int64_t row = 0; row < rows->count; row++) {
        int64_t value = rows->valid && !rows->valid[row] ? 0 : values[row], place = place_of(rows, row);
        low[place] += high ? (uint64_t)value & 0xFFFFFFFFu : (uint64_t)value;
        if (high)
            high[place] += (uint64_t)(value >> 32);
    }
}
