/* Counts, integer sums and extremes of every query over a laid out batch, from bitmaps of rows: the compiled form of
   `shared_aggregation.bitmaps`, whose numpy form is its oracle. Rows are lanes, 64 a word; a word belongs to one cell.

   A block of STRIP words is matched with all queries: per attribute "the rows of rank r or higher" is one bitmap for
   every r, a query's boxes are ANDs of XORs of such bitmaps, and what a query selects stays in registers and the first
   cache until its counts, sums, first and last lanes are added to its cells.

   This file is compiled once per instruction set, with FOLD the name of its one function. */

#include "bitmaps.h"

#include <stdlib.h>
#include <string.h>

typedef uint64_t Strip[STRIP] __attribute__((aligned(64)));

/* The bitmaps of one attribute in a block: `renamed` gives the row of `table` for a bitmap's number. */
typedef struct {
    Strip *table;
    int32_t *renamed;
} Bitmaps;

/* The ranks of a block's lanes. */
static const uint32_t *find_ranks(const Attribute *attribute, int64_t low, int64_t lanes, uint32_t *restrict ranks)
{
    if (!attribute->table)
        return attribute->ranks + low;
    for (int64_t lane = 0; lane < lanes; lane++)
        ranks[lane] = attribute->table[attribute->keys[low + lane]];
    return ranks;
}

/* Numbers the ranks of a block that occur; bitmaps are then as many as rows at most, whatever the constants. */
static int64_t rename_ranks(int64_t cuts, const uint32_t *ranks, int64_t lanes, int32_t *renamed)
{
    int64_t present = 0;
    memset(renamed, 0, (size_t)(cuts + 3) * sizeof *renamed);
    for (int64_t lane = 0; lane < lanes; lane++)
        renamed[ranks[lane]] = 1;
    for (int64_t rank = 0; rank <= cuts; rank++) { /* rows of rank r or higher: those of the next rank that occurs */
        int32_t occurs = renamed[rank];
        renamed[rank] = (int32_t)present;
        present += occurs;
    }
    renamed[cuts + 1] = (int32_t)present;
    renamed[cuts + 2] = (int32_t)present + 1;
    return present;
}

static void cumulate(const Attribute *attribute, int64_t low, int64_t words, Bitmaps *bitmaps)
{
    uint32_t looked_up[STRIP * 64];
    int64_t lanes = words * 64;
    const uint32_t *ranks = find_ranks(attribute, low * 64, lanes, looked_up);
    int64_t present = rename_ranks(attribute->cuts, ranks, lanes, bitmaps->renamed);
    Strip *table = bitmaps->table;
    memset(table, 0, (size_t)(present + 2) * sizeof *table);
    for (int64_t lane = 0; lane < lanes; lane++)
        table[bitmaps->renamed[ranks[lane]]][lane >> 6] |= (uint64_t)1 << (lane & 63);
    for (int64_t rank = present - 2; rank >= 0; rank--)
        for (int word = 0; word < STRIP; word++)
            table[rank][word] |= table[rank + 1][word];
}

/* The rows that one box accepts are left in `held`. */
static void narrow(const Queries *queries, int64_t box, const Bitmaps *bitmaps, uint64_t *restrict held)
{
    for (int64_t factor = queries->factors[box]; factor < queries->factors[box + 1]; factor++) {
        int64_t at = queries->starts[factor], stop = queries->starts[factor + 1];
        const Bitmaps *of = bitmaps + queries->attributes[factor];
        if (stop - at == 1) {
            const uint64_t *restrict only = of->table[of->renamed[queries->bitmaps[at]]];
            for (int word = 0; word < STRIP; word++)
                held[word] &= only[word];
        } else if (stop - at == 2) {
            const uint64_t *first = of->table[of->renamed[queries->bitmaps[at]]];
            const uint64_t *second = of->table[of->renamed[queries->bitmaps[at + 1]]];
            for (int word = 0; word < STRIP; word++)
                held[word] &= first[word] ^ second[word];
        } else {
            Strip rows = {0};
            for (; at < stop; at++) {
                const uint64_t *next = of->table[of->renamed[queries->bitmaps[at]]];
                for (int word = 0; word < STRIP; word++)
                    rows[word] ^= next[word];
            }
            for (int word = 0; word < STRIP; word++)
                held[word] &= rows[word];
        }
    }
}

/* The rows of the block that a query selects; whether there is one. */
static int select_rows(
    const Queries *queries, int64_t query, const Bitmaps *bitmaps, const uint64_t *mask, uint64_t *restrict held)
{
    int64_t box = queries->boxes[query], stop = queries->boxes[query + 1];
    memcpy(held, mask, sizeof(Strip));
    narrow(queries, box, bitmaps, held);
    while (++box < stop) {
        Strip other;
        memcpy(other, mask, sizeof other);
        narrow(queries, box, bitmaps, other);
        for (int word = 0; word < STRIP; word++)
            held[word] |= other[word];
    }
    uint64_t any = 0;
    for (int word = 0; word < STRIP; word++)
        any |= held[word];
    return any != 0;
}

/* The cells of a block: `begins[i]` is the word at which cell `numbers[i]` begins. */
typedef struct {
    int64_t count;
    int64_t numbers[STRIP];
    int begins[STRIP + 1];
} Cells;

static void cells_of(const Layout *layout, int64_t low, int64_t words, int64_t *cell, Cells *cells)
{
    cells->count = 0;
    while (layout->starts[*cell + 1] <= low)
        ++*cell;
    for (int64_t at = *cell; layout->starts[at] < low + words; at++) {
        if (layout->starts[at + 1] == layout->starts[at])
            continue;
        int64_t begin = layout->starts[at] - low;
        cells->begins[cells->count] = begin < 0 ? 0 : (int)begin;
        cells->numbers[cells->count++] = at - layout->first;
    }
    cells->begins[cells->count] = STRIP;
}

static void add_by_cell(const uint64_t *restrict by_word, const Cells *cells, int64_t *restrict into)
{
    if (cells->count == 1) {
        uint64_t sum = 0;
        for (int word = 0; word < STRIP; word++)
            sum += by_word[word];
        into[cells->numbers[0]] += (int64_t)sum;
        return;
    }
    for (int64_t i = 0; i < cells->count; i++) {
        uint64_t sum = 0;
        for (int word = cells->begins[i]; word < cells->begins[i + 1]; word++)
            sum += by_word[word];
        into[cells->numbers[i]] += (int64_t)sum;
    }
}

static void find_ends(
    const uint64_t *held, const Cells *cells, int64_t lane, int64_t *restrict first, int64_t *restrict last)
{
    for (int64_t i = 0; i < cells->count; i++) {
        int word = cells->begins[i], back = cells->begins[i + 1] - 1;
        while (word <= back && !held[word])
            word++;
        if (word > back)
            continue;
        while (!held[back])
            back--;
        int64_t cell = cells->numbers[i];
        if (first[cell] < 0)
            first[cell] = lane + word * 64 + __builtin_ctzll(held[word]);
        last[cell] = lane + back * 64 + 63 - __builtin_clzll(held[back]);
    }
}

/* The slices of a sum in a block, and the least number of each word as two halves. */
typedef struct {
    int64_t width;
    int has_low, has_high;
    Strip *slices;
    Strip low, high;
} Slices;

static void slice_block(const Total *total, int64_t low, int64_t words, Slices *slices)
{
    slices->width = 0;
    for (int64_t word = low; word < low + words; word++)
        if (total->widths[word] > slices->width)
            slices->width = total->widths[word];
    for (int64_t bit = 0; bit < slices->width; bit++) {
        memset(slices->slices[bit], 0, sizeof(Strip));
        memcpy(slices->slices[bit], total->slices + bit * total->words + low, (size_t)words * sizeof(uint64_t));
    }
    memset(slices->low, 0, sizeof(Strip));
    memset(slices->high, 0, sizeof(Strip));
    uint64_t bases = 0;
    if (total->bases)
        for (int64_t word = 0; word < words; word++) {
            slices->low[word] = total->bases[low + word] & 0xFFFFFFFFu;
            slices->high[word] = total->bases[low + word] >> 32;
            bases |= total->bases[low + word];
        }
    slices->has_low = (bases & 0xFFFFFFFFu) != 0;
    slices->has_high = bases >> 32 != 0;
}

static void add_sums(
    const uint64_t *restrict held, const uint64_t *restrict ones, const Slices *slices, const Cells *cells, int64_t *low,
    int64_t *high)
{
    Strip sums = {0};
    int64_t halves = slices->width < 32 ? slices->width : 32;
    if (slices->has_low)
        for (int word = 0; word < STRIP; word++)
            sums[word] = (uint64_t)(uint32_t)ones[word] * (uint32_t)slices->low[word];
    for (int64_t bit = 0; bit < halves; bit++)
        for (int word = 0; word < STRIP; word++)
            sums[word] += (uint64_t)__builtin_popcountll(held[word] & slices->slices[bit][word]) << bit;
    add_by_cell(sums, cells, low);
    if (slices->width <= 32 && !slices->has_high)
        return;
    for (int word = 0; word < STRIP; word++)
        sums[word] = (uint64_t)(uint32_t)ones[word] * (uint32_t)slices->high[word];
    for (int64_t bit = 32; bit < slices->width; bit++)
        for (int word = 0; word < STRIP; word++)
            sums[word] += (uint64_t)__builtin_popcountll(held[word] & slices->slices[bit][word]) << (bit - 32);
    add_by_cell(sums, cells, high);
}

/* Sums of doubles. Lane b of a word is added to accumulator b % 8 in every instruction set: all round alike. */
static void add_doubles(const uint64_t *held, const Cells *cells, const double *restrict values, double *into)
{
    for (int64_t i = 0; i < cells->count; i++) {
        double sums[8] = {0};
        for (int word = cells->begins[i]; word < cells->begins[i + 1]; word++) {
            const double *restrict lanes = values + word * 64;
            if (held[word])
                for (int lane = 0; lane < 64; lane += 8)
                    for (int j = 0; j < 8; j++)
                        sums[j] += held[word] >> (lane + j) & 1 ? lanes[lane + j] : 0.0;
        }
        into[cells->numbers[i]] += ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
}

/* Memory of one call. */
typedef struct {
    Bitmaps *bitmaps;
    Slices *slices;
} Scratch;

static void release(const Fold *fold, Scratch *scratch)
{
    for (int64_t i = 0; scratch->bitmaps && i < fold->attribute_count; i++) {
        free(scratch->bitmaps[i].table);
        free(scratch->bitmaps[i].renamed);
    }
    for (int64_t i = 0; scratch->slices && i < fold->total_count; i++)
        free(scratch->slices[i].slices);
    free(scratch->bitmaps);
    free(scratch->slices);
}

static int reserve(const Fold *fold, Scratch *scratch)
{
    scratch->bitmaps = calloc((size_t)fold->attribute_count + 1, sizeof *scratch->bitmaps);
    scratch->slices = aligned_alloc(64, (size_t)(fold->total_count + 1) * sizeof *scratch->slices);
    if (!scratch->bitmaps || !scratch->slices)
        return 0;
    memset(scratch->slices, 0, (size_t)(fold->total_count + 1) * sizeof *scratch->slices);
    for (int64_t i = 0; i < fold->attribute_count; i++) {
        int64_t most = fold->attributes[i].cuts + 1;
        most = (most < STRIP * 64 ? most : STRIP * 64) + 2;
        scratch->bitmaps[i].table = aligned_alloc(64, (size_t)most * sizeof(Strip));
        scratch->bitmaps[i].renamed = malloc((size_t)(fold->attributes[i].cuts + 3) * sizeof(int32_t));
        if (!scratch->bitmaps[i].table || !scratch->bitmaps[i].renamed)
            return 0;
    }
    for (int64_t i = 0; i < fold->total_count; i++) {
        scratch->slices[i].slices = aligned_alloc(64, 64 * sizeof(Strip));
        if (!scratch->slices[i].slices)
            return 0;
    }
    return 1;
}

static void fold_block(const Fold *fold, const Scratch *scratch, int64_t low, int64_t words, const Cells *cells)
{
    Strip mask = {0}, held, counted, ones;
    memcpy(mask, fold->layout.mask + low, (size_t)words * sizeof(uint64_t));
    for (int64_t i = 0; i < fold->attribute_count; i++)
        cumulate(fold->attributes + i, low, words, scratch->bitmaps + i);
    for (int64_t i = 0; i < fold->total_count; i++)
        slice_block(fold->totals + i, low, words, scratch->slices + i);
    for (int64_t query = 0; query < fold->queries.count; query++) {
        if (!select_rows(&fold->queries, query, scratch->bitmaps, mask, held))
            continue;
        int64_t row = query * fold->layout.cells;
        for (int64_t k = 0; k < fold->kind_count; k++) {
            const Kind *kind = fold->kinds + k;
            const uint64_t *rows = held;
            if (kind->valid) {
                memcpy(counted, held, sizeof counted);
                for (int64_t word = 0; word < words; word++)
                    counted[word] &= kind->valid[low + word];
                rows = counted;
            }
            for (int word = 0; word < STRIP; word++)
                ones[word] = (uint64_t)__builtin_popcountll(rows[word]);
            add_by_cell(ones, cells, kind->counts + row);
            if (kind->first)
                find_ends(rows, cells, low * 64, kind->first + row, kind->last + row);
            for (int64_t i = 0; i < fold->total_count; i++)
                if (fold->totals[i].kind == k)
                    add_sums(rows, ones, scratch->slices + i, cells, fold->totals[i].low + row, fold->totals[i].high + row);
            for (int64_t i = 0; i < fold->double_count; i++)
                if (fold->doubles[i].kind == k)
                    add_doubles(rows, cells, fold->doubles[i].values + low * 64, fold->doubles[i].sums + row);
        }
    }
}

int FOLD(const Fold *fold)
{
    Scratch scratch = {0};
    int enough = reserve(fold, &scratch);
    const Layout *layout = &fold->layout;
    int64_t end = layout->starts[layout->first + layout->cells], cell = layout->first;
    for (int64_t low = layout->starts[layout->first]; enough && low < end; low += STRIP) {
        int64_t words = end - low < STRIP ? end - low : STRIP;
        Cells cells;
        cells_of(layout, low, words, &cell, &cells);
        fold_block(fold, &scratch, low, words, &cells);
    }
    release(fold, &scratch);
    return enough;
}
