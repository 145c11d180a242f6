// Sums in 32-bit words as they come from Python (words.h): widths and sizes are checked before anything is multiplied.
#pragma once
#include "bind.h"
#include "lane.h"

// Words hold `sum_digits` digits 0 .. 2 * zero.
inline void check_sum(int64_t zero, int sum_digits) {
  require(zero >= 1 && zero <= 32767 && sum_digits >= 1 && sum_digits <= 20, "sum width");
  uint64_t limit = 1;
  for (int k = 0; k < sum_digits && limit <= (uint64_t{1} << 32); ++k) limit *= static_cast<uint64_t>(2 * zero + 1);
  require(limit <= (uint64_t{1} << 32), "sum width");
}

// Words that hold so many rows of sums.
inline int64_t words_of(int64_t rows, int sum_digits) {
  return product(rows / sum_digits + (rows % sum_digits != 0), tw::kRow, "words: wrong size");
}

// The rows of all shards of sums, whose words must be there.
inline int64_t check_shards(size_t words, int64_t num_shards, int64_t rows_per_shard, int sum_digits) {
  require(num_shards >= 1 && rows_per_shard >= 0, "words: wrong size");
  const int64_t wanted = product(num_shards, words_of(rows_per_shard, sum_digits), "words: wrong size");
  require(words == static_cast<size_t>(wanted), "words: wrong size");
  return product(num_shards, rows_per_shard, "words: wrong size");
}
