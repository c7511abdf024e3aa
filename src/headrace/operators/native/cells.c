/* Cells of many queries that are added to others where they are. */

#include <stdint.h>

/* Adds row i of `from`, of `columns` numbers, to row rows[i] of `into`, whose rows are `stride` apart. Sums wrap around. */
void headrace_add_rows(
    uint64_t *restrict into, int64_t stride, const int64_t *restrict rows, int64_t count, const uint64_t *restrict from,
    int64_t columns)
{
    for (int64_t i = 0; i < count; i++, from += columns) {
        uint64_t *restrict row = into + rows[i] * stride, any = 0;
        for (int64_t column = 0; column < columns; column++)
            any |= from[column];
        if (!any) /* as the high parts of most sums: memory that was not touched yet stays so */
            continue;
        for (int64_t column = 0; column < columns; column++)
            row[column] += from[column];
    }
}
