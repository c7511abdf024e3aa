/* What `histograms.c` is given: arrays of numpy, which `histograms.py` keeps alive. All counts are int64. */

#ifndef HEADRACE_HISTOGRAMS_H
#define HEADRACE_HISTOGRAMS_H

#include <stdint.h>

/* Rows whose rank is table[keys[row]], or without a table ranks[row], and whose cell is codes[row], below `cells`; those that
   are not `valid` are left out, none if it is NULL. */
typedef struct {
    int64_t count, cells;
    const uint16_t *keys;
    const uint32_t *table, *ranks;
    const int64_t *codes;
    const uint8_t *valid;
} Ranked;

#endif
