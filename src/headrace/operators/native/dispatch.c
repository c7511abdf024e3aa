/* Chooses, once a process, among the kernels compiled for several instruction sets: the widest that the processor and
   the system have. */

#include "bitmaps.h"

int headrace_fold_plain(const Fold *fold);

#if defined(__x86_64__)
#include <cpuid.h>

int headrace_fold_v3(const Fold *fold);
int headrace_fold_v4(const Fold *fold);

static uint64_t enabled_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* 0: any x86-64; 1: with AVX2; 2: with AVX-512 and its population counts. */
int headrace_widest(void)
{
    uint32_t a, b, c, d, saved, ymm = 0x6, zmm = 0xE6;
    uint32_t of_v3 = 1u << 3 | 1u << 5 | 1u << 8, of_v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    if (!__get_cpuid(1, &a, &b, &saved, &d) || !(saved & 1u << 27) || !(saved & 1u << 23))
        return 0;
    uint64_t registers = enabled_registers();
    if ((registers & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & of_v3) != of_v3)
        return 0;
    if (!(saved & 1u << 12) || !(saved & 1u << 22))
        return 0;
    return (registers & zmm) == zmm && (b & of_v4) == of_v4 && c & 1u << 14 ? 2 : 1;
}

int headrace_fold(const Fold *fold, int width)
{
    return width == 2 ? headrace_fold_v4(fold) : width == 1 ? headrace_fold_v3(fold) : headrace_fold_plain(fold);
}
#else
int headrace_widest(void)
{
    return 0;
}

int headrace_fold(const Fold *fold, int width)
{
    (void)width;
    return headrace_fold_plain(fold);
}
#endif
