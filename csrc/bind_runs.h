// The table of runs of a rotation as it comes from Python: every entry is checked against the buffers it points into.
#pragma once
#include "bind.h"
#include "hadamard.h"

class Runs {
 public:
  Runs(const Flat<const int64_t>& table, size_t x_size, size_t y_size, size_t num_keys, size_t num_factors,
       int64_t size)
      : runs_(reinterpret_cast<const tw::Run*>(table.data())),
        count_(static_cast<int64_t>(table.size()) / tw::kRunColumns) {
    require(static_cast<int64_t>(table.size()) % tw::kRunColumns == 0, "table of runs: six columns wanted");
    require(num_keys == static_cast<size_t>(2 * count_), "keys: two words a run wanted");
    require(size >= 1 && size <= tw::kMaxTurned && (size & (size - 1)) == 0 && (size == 1 || size % 16 == 0),
            "size: 1, or a power of two from 16 to 4096 wanted");
    for (int64_t i = 0; i < count_; ++i) check(runs_[i], x_size, y_size, num_factors, size);
  }
  const tw::Run* data() const { return runs_; }
  int64_t count() const { return count_; }

 private:
  static constexpr int64_t kHuge = int64_t{1} << 60;  // no sum of two such numbers overflows

  static void check(const tw::Run& run, size_t x_size, size_t y_size, size_t num_factors, int64_t size) {
    const auto fits = [&](int64_t offset, size_t room) {
      const auto end = static_cast<int64_t>(room);
      return offset >= 0 && run.numel >= 0 && offset <= end && run.numel <= end - offset;
    };
    require(fits(run.source, x_size) && fits(run.target, y_size), "table of runs: a run lies outside its buffer");
    require(run.block >= 0 && run.block < kHuge && run.block % size == 0, "table of runs: uneven block");
    require(run.start >= 0 && run.start < kHuge && run.start % size == 0, "table of runs: uneven start");
    const int64_t last = run.start + (run.numel > 0 ? run.numel - 1 : 0);
    require(run.scale >= 0 && run.scale < kHuge &&
                run.scale + (run.block == 0 ? 0 : last / run.block) < static_cast<int64_t>(num_factors),
            "table of runs: a factor lies outside the table of factors");
  }

  const tw::Run* runs_;
  int64_t count_;
};
