/* What `bitmaps.c` is given: pointers into arrays of numpy, which `bitmaps.py` keeps alive. All counts are int64. */

#ifndef HEADRACE_BITMAPS_H
#define HEADRACE_BITMAPS_H

#include <stdint.h>

enum { STRIP = 64 };

/* Cells first..first+cells; cell c has words starts[c]..starts[c+1]; `mask` has the lanes that hold a row. */
typedef struct {
    const uint64_t *mask;
    const int64_t *starts;
    int64_t first, cells;
} Layout;

/* Ranks are 0..cuts of values, cuts + 2 of NULL: that of a lane is table[keys[lane]], or without a table ranks[lane]. */
typedef struct {
    const uint16_t *keys;
    const uint32_t *table, *ranks;
    int64_t cuts;
} Attribute;

/* Query q has boxes boxes[q]..boxes[q+1]; a box, factors; a factor, the bitmaps of one attribute whose XOR it is. */
typedef struct {
    int64_t count;
    const int64_t *boxes, *factors, *attributes, *starts, *bitmaps;
} Queries;

/* Rows that are counted together: those in `valid`, all if it is NULL. Lanes are -1 where there is none yet. */
typedef struct {
    const uint64_t *valid;
    int64_t *counts, *first, *last;
} Kind;

/* A sum over the rows of a kind: a number is its bits in `slices` plus, unless it is NULL, the base of its word. */
typedef struct {
    int64_t kind, words;
    const uint64_t *slices, *bases;
    const int64_t *widths;
    int64_t *low, *high;
} Total;

/* A sum of doubles, by lane, over the rows of a kind. */
typedef struct {
    int64_t kind;
    const double *values;
    double *sums;
} Doubles;

typedef struct {
    Layout layout;
    Queries queries;
    int64_t attribute_count, kind_count, total_count, double_count;
    const Attribute *attributes;
    const Kind *kinds;
    const Total *totals;
    const Doubles *doubles;
} Fold;

#endif
