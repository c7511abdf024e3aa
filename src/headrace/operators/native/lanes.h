/* What `lanes.c` is given: arrays of numpy, which `lanes.py` keeps alive. All counts are int64. */

#ifndef HEADRACE_LANES_H
#define HEADRACE_LANES_H

#include <stdint.h>

/* `codes` in 0..cells, by row; unless `values` is NULL, the bits of a value less `low` from `shift` on, at most `spare`,
   order the rows of a cell. */
typedef struct {
    int64_t count, cells, spare, shift, low;
    const int64_t *codes, *values;
} Rows;

#endif
