/* Counts, integer sums and extremes of every query over a laid out batch, from bitmaps of rows: the compiled form of
   `shared_aggregation.bitmaps`, whose numpy form is its oracle. Rows are lanes, 64 a word; a word belongs to one cell.

   A block of up to STRIP words is matched with all queries: per attribute "the rows of rank r or higher" is one bitmap for
   every r, a query's boxes are ANDs of XORs of such bitmaps, and what a query selects stays in the first cache until its
   counts, sums, first and last lanes are added to its cells. A large cell has its blocks for itself, so that the words of
   a block are added up in a register; small cells share blocks.

   Bitmaps are whole lines of LINE words, the widest register: a loop over a line is one instruction there. All bitmaps of a
   block are one table that no first cache holds, so it has no more lines than the block.

   This file is compiled once per instruction set, with FOLD the name of its one function. */

#include "bitmaps.h"

#include <stdlib.h>
#include <string.h>

#define HALF 0xFFFFFFFFu

#if defined(__AVX512F__)
enum { LINE = 8 };
#elif defined(__AVX2__)
enum { LINE = 4 };
#else
enum { LINE = 2 };
#endif

enum { LARGE = 16, MOST_FACTORS = 4 };

#define INLINE static inline __attribute__((always_inline))

/* Eight words in the widest register, or in several; STRIP of them. */
typedef uint64_t Line __attribute__((vector_size(LINE * 8), may_alias));
typedef Line Strip[STRIP / LINE];

/* A block: `words` words of the layout from `low` on, in `lines` lines whose other words are empty; cell `numbers[i]` begins
   at word `begins[i]` of it. */
typedef struct {
    int64_t low, words, lines, cells;
    int64_t numbers[STRIP];
    int begins[STRIP + 1];
    Strip mask;
} Block;

INLINE Line counted(Line rows)
{
    Line ones;
    for (int word = 0; word < LINE; word++)
        ones[word] = (uint64_t)__builtin_popcountll(rows[word]);
    return ones;
}

INLINE int is_any(Line rows)
{
    uint64_t any = 0;
    for (int word = 0; word < LINE; word++)
        any |= rows[word];
    return any != 0;
}

INLINE uint64_t added(Line numbers)
{
    uint64_t sum = 0;
    for (int word = 0; word < LINE; word++)
        sum += numbers[word];
    return sum;
}

/* The bitmaps of a block: bitmap b of attribute a begins at word `places[first[a] + b]` of `table`. */
typedef struct {
    uint64_t *table;
    uint32_t *places;
    int64_t *first;
} Bitmaps;

/* The queries in the order in which they are matched. Those from begins[n] to begins[n + 1] are of one box of n factors, each
   the XOR of two bitmaps (of one and that of no rows), whose places are `operands`, query by query; those up to begins[1] are
   all others. */
typedef struct {
    int64_t *order, begins[MOST_FACTORS + 2];
    uint32_t *operands;
} Plan;

/* The slices of a sum in a block, and the least number of each word as two halves. */
typedef struct {
    int64_t width;
    int has_high;
    Strip *slices;
    Strip low, high;
} Slices;

/* Memory of one call. */
typedef struct {
    Plan plan;
    Bitmaps bitmaps;
    Slices *slices;
} Scratch;

/* What a query selects of a block, and how many rows by word. */
typedef struct {
    Strip rows, ones;
} Held;

/* -- blocks */

/* The block at word `low`: the words of one cell, if it is large, or of several that are not. */
static void find_block(const Layout *layout, int64_t low, int64_t *cell, Block *block)
{
    int64_t last = layout->first + layout->cells, at, stop;
    while (layout->starts[*cell + 1] <= low)
        ++*cell;
    block->cells = 0;
    for (at = *cell, stop = low; at < last && stop < low + STRIP; at++) {
        int64_t words = layout->starts[at + 1] - layout->starts[at];
        if (words == 0)
            continue;
        if (words >= LARGE && block->cells > 0)
            break;
        block->begins[block->cells] = (int)(stop - low);
        block->numbers[block->cells++] = at - layout->first;
        stop = layout->starts[at + 1];
        if (words >= LARGE)
            break;
    }
    block->low = low;
    block->words = (stop < low + STRIP ? stop : low + STRIP) - low;
    block->lines = (block->words + LINE - 1) / LINE;
    block->begins[block->cells] = (int)block->words;
    memset(block->mask, 0, sizeof block->mask);
    memcpy(block->mask, layout->mask + low, (size_t)block->words * sizeof(uint64_t));
}

/* -- bitmaps by attribute */

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
static int64_t rename_ranks(int64_t cuts, const uint32_t *ranks, int64_t lanes, uint32_t *renamed)
{
    uint32_t present = 0;
    memset(renamed, 0, (size_t)(cuts + 3) * sizeof *renamed);
    for (int64_t lane = 0; lane < lanes; lane++)
        renamed[ranks[lane]] = 1;
    for (int64_t rank = 0; rank <= cuts; rank++) { /* rows of rank r or higher: those of the next rank that occurs */
        uint32_t occurs = renamed[rank];
        renamed[rank] = present;
        present += occurs;
    }
    renamed[cuts + 1] = present;
    renamed[cuts + 2] = present + 1;
    return present;
}

/* Writes the bitmaps of an attribute from word `base` of the table on, and where each begins to `places`; returns their end. */
static int64_t cumulate(const Attribute *attribute, const Block *block, uint64_t *table, uint32_t *places, int64_t base)
{
    uint32_t looked_up[STRIP * 64];
    int64_t lanes = block->words * 64, stride = block->lines * LINE;
    const uint32_t *ranks = find_ranks(attribute, block->low * 64, lanes, looked_up);
    int64_t present = rename_ranks(attribute->cuts, ranks, lanes, places), end = base + (present + 2) * stride;
    for (int64_t bitmap = 0; bitmap < attribute->cuts + 3; bitmap++)
        places[bitmap] = (uint32_t)(base + places[bitmap] * stride);
    memset(table + base, 0, (size_t)(end - base) * sizeof *table);
    for (int64_t lane = 0; lane < lanes; lane++)
        table[places[ranks[lane]] + (lane >> 6)] |= (uint64_t)1 << (lane & 63);
    for (int64_t word = base + (present - 1) * stride - LINE; word >= base; word -= LINE)
        *(Line *)(table + word) |= *(Line *)(table + word + stride);
    return end;
}

static void make_bitmaps(const Fold *fold, const Block *block, Bitmaps *bitmaps)
{
    int64_t base = 0;
    for (int64_t i = 0; i < fold->attribute_count; i++)
        base = cumulate(fold->attributes + i, block, bitmaps->table, bitmaps->places + bitmaps->first[i], base);
}

/* -- what a query selects */

/* The rows that one box accepts are left in `rows`. */
static void narrow(const Queries *queries, int64_t box, const Bitmaps *bitmaps, int64_t lines, Line *rows)
{
    for (int64_t factor = queries->factors[box]; factor < queries->factors[box + 1]; factor++) {
        Strip accepted = {0};
        for (int64_t at = queries->starts[factor]; at < queries->starts[factor + 1]; at++) {
            int64_t number = bitmaps->first[queries->attributes[factor]] + queries->bitmaps[at];
            const Line *next = (const Line *)(bitmaps->table + bitmaps->places[number]);
            for (int64_t line = 0; line < lines; line++)
                accepted[line] ^= next[line];
        }
        for (int64_t line = 0; line < lines; line++)
            rows[line] &= accepted[line];
    }
}

/* The rows that a query of any boxes selects; whether there is one. */
static int select_any(const Queries *queries, int64_t query, const Bitmaps *bitmaps, const Block *block, Held *held)
{
    Strip rows = {0}, of_box;
    for (int64_t box = queries->boxes[query]; box < queries->boxes[query + 1]; box++) {
        memcpy(of_box, block->mask, sizeof of_box);
        narrow(queries, box, bitmaps, block->lines, of_box);
        for (int64_t line = 0; line < block->lines; line++)
            rows[line] |= of_box[line];
    }
    Line any = {0};
    for (int64_t line = 0; line < block->lines; line++) {
        any |= rows[line];
        held->rows[line] = rows[line];
        held->ones[line] = counted(rows[line]);
    }
    return is_any(any);
}

/* The same of one box of `factors` XORs of two bitmaps. */
INLINE int select_pairs(
    const uint32_t *operands, const int factors, const Bitmaps *bitmaps, const Block *block, Held *restrict held)
{
    const Line *bitmap[2 * MOST_FACTORS];
    for (int i = 0; i < 2 * factors; i++)
        bitmap[i] = (const Line *)(bitmaps->table + bitmaps->places[operands[i]]);
    Line any = {0};
    for (int64_t line = 0; line < block->lines; line++) {
        Line rows = block->mask[line];
        for (int i = 0; i < factors; i++)
            rows &= bitmap[2 * i][line] ^ bitmap[2 * i + 1][line];
        any |= rows;
        held->rows[line] = rows;
        held->ones[line] = counted(rows);
    }
    return is_any(any);
}

/* -- what is added to its cells */

INLINE void add_by_cell(const Line *numbers, const Block *block, int64_t *into)
{
    if (block->cells == 1) {
        Line sums = numbers[0];
        for (int64_t line = 1; line < block->lines; line++)
            sums += numbers[line];
        into[block->numbers[0]] += (int64_t)added(sums);
        return;
    }
    const uint64_t *by_word = (const uint64_t *)numbers;
    for (int64_t i = 0; i < block->cells; i++) {
        uint64_t sum = 0;
        for (int word = block->begins[i]; word < block->begins[i + 1]; word++)
            sum += by_word[word];
        into[block->numbers[i]] += (int64_t)sum;
    }
}

static void find_ends(const uint64_t *rows, const Block *block, int64_t *restrict first, int64_t *restrict last)
{
    int64_t lane = block->low * 64;
    for (int64_t i = 0; i < block->cells; i++) {
        int word = block->begins[i], back = block->begins[i + 1] - 1;
        while (word <= back && !rows[word])
            word++;
        if (word > back)
            continue;
        while (!rows[back])
            back--;
        int64_t cell = block->numbers[i];
        if (first[cell] < 0)
            first[cell] = lane + word * 64 + __builtin_ctzll(rows[word]);
        last[cell] = lane + back * 64 + 63 - __builtin_clzll(rows[back]);
    }
}

static void slice_block(const Total *total, const Block *block, Slices *slices)
{
    int64_t low = block->low, words = block->words;
    uint64_t *lows = (uint64_t *)slices->low, *highs = (uint64_t *)slices->high;
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
            lows[word] = total->bases[low + word] & HALF;
            highs[word] = total->bases[low + word] >> 32;
            bases |= total->bases[low + word];
        }
    slices->has_high = bases >> 32 != 0;
}

/* The numbers of a line's words: of bits from `bit` to `stop`, and `least` for each row. */
INLINE Line numbers_of(const Held *held, const Line *least, const Slices *slices, int64_t bit, int64_t stop, int64_t line)
{
    Line rows = held->rows[line], sum = (held->ones[line] & HALF) * (least[line] & HALF);
    for (int64_t at = bit; at < stop; at++)
        sum += counted(rows & slices->slices[at][line]) << (at - bit);
    return sum;
}

/* Adds these numbers to the cells in `into`. */
INLINE void add_bits(
    const Held *held, const Line *least, const Slices *slices, int64_t bit, int64_t stop, const Block *block, int64_t *into)
{
    if (block->cells == 1) {
        Line sum = {0};
        for (int64_t line = 0; line < block->lines; line++)
            sum += numbers_of(held, least, slices, bit, stop, line);
        into[block->numbers[0]] += (int64_t)added(sum);
        return;
    }
    Strip sums;
    for (int64_t line = 0; line < block->lines; line++)
        sums[line] = numbers_of(held, least, slices, bit, stop, line);
    add_by_cell(sums, block, into);
}

static void add_sums(const Held *held, const Slices *slices, const Block *block, int64_t *low, int64_t *high)
{
    switch (slices->width) { /* the loop over few bits is unrolled */
    case 0: add_bits(held, slices->low, slices, 0, 0, block, low); break;
    case 1: add_bits(held, slices->low, slices, 0, 1, block, low); break;
    case 2: add_bits(held, slices->low, slices, 0, 2, block, low); break;
    case 3: add_bits(held, slices->low, slices, 0, 3, block, low); break;
    case 4: add_bits(held, slices->low, slices, 0, 4, block, low); break;
    default: add_bits(held, slices->low, slices, 0, slices->width < 32 ? slices->width : 32, block, low);
    }
    if (slices->width > 32 || slices->has_high)
        add_bits(held, slices->high, slices, 32, slices->width, block, high);
}

/* Sums of doubles. Lane b of a word is added to accumulator b % 8 in every instruction set: all round alike. */
static void add_doubles(const uint64_t *rows, const Block *block, const double *restrict values, double *into)
{
    for (int64_t i = 0; i < block->cells; i++) {
        double sums[8] = {0};
        for (int word = block->begins[i]; word < block->begins[i + 1]; word++) {
            const double *restrict lanes = values + word * 64;
            if (rows[word])
                for (int lane = 0; lane < 64; lane += 8)
                    for (int j = 0; j < 8; j++)
                        sums[j] += rows[word] >> (lane + j) & 1 ? lanes[lane + j] : 0.0;
        }
        into[block->numbers[i]] += ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
}

/* Adds what a query selects to its cells, which begin at `row`. */
INLINE void add_query(const Fold *fold, const Slices *slices, const Block *block, const Held *selected, int64_t row)
{
    Held of_kind;
    for (int64_t k = 0; k < fold->kind_count; k++) {
        const Kind *kind = fold->kinds + k;
        const Held *held = selected;
        if (kind->valid) {
            Strip valid = {0};
            memcpy(valid, kind->valid + block->low, (size_t)block->words * sizeof(uint64_t));
            for (int64_t line = 0; line < block->lines; line++) {
                of_kind.rows[line] = selected->rows[line] & valid[line];
                of_kind.ones[line] = counted(of_kind.rows[line]);
            }
            held = &of_kind;
        }
        add_by_cell(held->ones, block, kind->counts + row);
        if (kind->first)
            find_ends((const uint64_t *)held->rows, block, kind->first + row, kind->last + row);
        for (int64_t i = 0; i < fold->total_count; i++)
            if (fold->totals[i].kind == k)
                add_sums(held, slices + i, block, fold->totals[i].low + row, fold->totals[i].high + row);
        for (int64_t i = 0; i < fold->double_count; i++)
            if (fold->doubles[i].kind == k)
                add_doubles((const uint64_t *)held->rows, block, fold->doubles[i].values + block->low * 64, fold->doubles[i].sums + row);
    }
}

/* The queries of one box of `factors` XORs of two bitmaps. */
INLINE void fold_alike(const Fold *fold, const Scratch *scratch, const Block *block, const uint32_t *operands, const int factors)
{
    const Plan *plan = &scratch->plan;
    Held held;
    for (int64_t i = plan->begins[factors]; i < plan->begins[factors + 1]; i++, operands += 2 * factors) {
        if (select_pairs(operands, factors, &scratch->bitmaps, block, &held))
            add_query(fold, scratch->slices, block, &held, plan->order[i] * fold->layout.cells);
    }
}

static void fold_block(const Fold *fold, const Scratch *scratch, const Block *block)
{
    const Plan *plan = &scratch->plan;
    Held held;
    for (int64_t i = 0; i < plan->begins[1]; i++) {
        if (select_any(&fold->queries, plan->order[i], &scratch->bitmaps, block, &held))
            add_query(fold, scratch->slices, block, &held, plan->order[i] * fold->layout.cells);
    }
    const uint32_t *operands = plan->operands;
    fold_alike(fold, scratch, block, operands, 1);
    operands += 2 * (plan->begins[2] - plan->begins[1]);
    fold_alike(fold, scratch, block, operands, 2);
    operands += 4 * (plan->begins[3] - plan->begins[2]);
    fold_alike(fold, scratch, block, operands, 3);
    operands += 6 * (plan->begins[4] - plan->begins[3]);
    fold_alike(fold, scratch, block, operands, 4);
}

/* -- a call */

/* The number of factors of a query of one box of XORs of one or two bitmaps, if it is small; else 0. */
static int64_t pairs_of(const Queries *queries, int64_t query)
{
    int64_t box = queries->boxes[query];
    if (queries->boxes[query + 1] != box + 1)
        return 0;
    int64_t first = queries->factors[box], stop = queries->factors[box + 1];
    if (stop - first > MOST_FACTORS)
        return 0;
    for (int64_t factor = first; factor < stop; factor++) {
        int64_t bitmaps = queries->starts[factor + 1] - queries->starts[factor];
        if (bitmaps != 1 && bitmaps != 2)
            return 0;
    }
    return stop - first;
}

static void make_plan(const Fold *fold, const Bitmaps *bitmaps, Plan *plan)
{
    const Queries *queries = &fold->queries;
    int64_t next[MOST_FACTORS + 1] = {0};
    for (int64_t query = 0; query < queries->count; query++)
        next[pairs_of(queries, query)]++;
    plan->begins[0] = 0;
    for (int n = 0; n <= MOST_FACTORS; n++) {
        plan->begins[n + 1] = plan->begins[n] + next[n];
        next[n] = plan->begins[n];
    }
    for (int64_t query = 0; query < queries->count; query++)
        plan->order[next[pairs_of(queries, query)]++] = query;
    uint32_t *operand = plan->operands;
    for (int64_t i = plan->begins[1]; i < queries->count; i++) {
        int64_t box = queries->boxes[plan->order[i]];
        for (int64_t factor = queries->factors[box]; factor < queries->factors[box + 1]; factor++) {
            int64_t attribute = queries->attributes[factor], at = queries->starts[factor];
            int64_t blank = fold->attributes[attribute].cuts + 1, is_one = queries->starts[factor + 1] == at + 1;
            *operand++ = (uint32_t)(bitmaps->first[attribute] + queries->bitmaps[at]);
            *operand++ = (uint32_t)(bitmaps->first[attribute] + (is_one ? blank : queries->bitmaps[at + 1]));
        }
    }
}

static void release(const Fold *fold, Scratch *scratch)
{
    for (int64_t i = 0; scratch->slices && i < fold->total_count; i++)
        free(scratch->slices[i].slices);
    free(scratch->slices);
    free(scratch->bitmaps.table);
    free(scratch->bitmaps.places);
    free(scratch->bitmaps.first);
    free(scratch->plan.order);
    free(scratch->plan.operands);
}

/* Memory for `count` things of `size` bytes, from a line on; NULL if there is none. */
static void *lines_of(int64_t count, size_t size)
{
    return aligned_alloc(64, ((size_t)(count + 1) * size + 63) / 64 * 64);
}

static int reserve(const Fold *fold, Scratch *scratch)
{
    int64_t rows = 0, numbers = 0;
    scratch->bitmaps.first = lines_of(fold->attribute_count, sizeof(int64_t));
    scratch->slices = lines_of(fold->total_count, sizeof *scratch->slices);
    if (!scratch->bitmaps.first || !scratch->slices)
        return 0;
    memset(scratch->slices, 0, (size_t)(fold->total_count + 1) * sizeof *scratch->slices);
    for (int64_t i = 0; i < fold->attribute_count; i++) {
        int64_t most = fold->attributes[i].cuts + 1;
        rows += (most < STRIP * 64 ? most : STRIP * 64) + 2;
        scratch->bitmaps.first[i] = numbers;
        numbers += fold->attributes[i].cuts + 3;
    }
    scratch->bitmaps.table = lines_of(rows, sizeof(Strip));
    scratch->bitmaps.places = lines_of(numbers, sizeof(uint32_t));
    scratch->plan.order = lines_of(fold->queries.count, sizeof(int64_t));
    scratch->plan.operands = lines_of(2 * MOST_FACTORS * fold->queries.count, sizeof(uint32_t));
    int enough = scratch->bitmaps.table && scratch->bitmaps.places && scratch->plan.order && scratch->plan.operands;
    for (int64_t i = 0; i < fold->total_count; i++) {
        scratch->slices[i].slices = lines_of(64, sizeof(Strip));
        enough = enough && scratch->slices[i].slices;
    }
    return enough;
}

int FOLD(const Fold *fold)
{
    Scratch scratch = {0};
    int enough = reserve(fold, &scratch);
    const Layout *layout = &fold->layout;
    int64_t end = layout->starts[layout->first + layout->cells], cell = layout->first;
    if (enough)
        make_plan(fold, &scratch.bitmaps, &scratch.plan);
    for (int64_t low = layout->starts[layout->first]; enough && low < end;) {
        Block block;
        find_block(layout, low, &cell, &block);
        make_bitmaps(fold, &block, &scratch.bitmaps);
        for (int64_t i = 0; i < fold->total_count; i++)
            slice_block(fold->totals + i, &block, scratch.slices + i);
        fold_block(fold, &scratch, &block);
        low += block.words;
    }
    release(fold, &scratch);
    return enough;
}
