// Memory pool of the device in strict mode: best fit, with splitting and coalescing of free chunks, as the bridge's
// pool strategy 4. Only addresses are managed; the memory is the host's.
#pragma once

#include "common.h"

namespace hpu_sim {

// Values of `hpu_sim.device.memory_rules`, in bytes.
struct PoolRules {
  int64_t alignment = 1;
  int64_t small_slab = 0;  // for blocks below two alignments; in use from the start
  int64_t workspace = 0;   // of recipes; in use from the start
  int64_t max_slack = 0;   // a free chunk that exceeds a request by less ...
  double min_filling = 1;  // ... and that the request fills to this share is handed out whole
};

class DevicePool {
 public:
  using Id = uint64_t;

  struct Block {
    Id id;
    int64_t bytes;  // by which the memory in use grows
  };

  // Starts an empty pool.
  void reset(int64_t size, const PoolRules& rules);

  // Returns none if there is no free memory, also after moving all blocks together.
  std::optional<Block> allocate(int64_t bytes);
  void free(Id id);

  int64_t reserved() const { return rules_.small_slab + rules_.workspace; }
  int64_t workspace() const { return rules_.workspace; }
  int64_t largest_free() const;
  int64_t num_defragmentations() const { return num_defragmentations_; }

 private:
  struct Chunk {
    int64_t offset;
    int64_t size;
  };

  std::optional<Chunk> take(int64_t bytes);
  void add_free(Chunk chunk);
  void remove_free(Chunk chunk);
  void defragment();

  PoolRules rules_;
  int64_t size_ = 0;
  int64_t free_bytes_ = 0;
  int64_t small_in_use_ = 0;
  int64_t num_defragmentations_ = 0;
  Id last_id_ = 0;
  std::map<int64_t, int64_t> free_by_offset_;
  std::set<std::pair<int64_t, int64_t>> free_by_size_;
  std::unordered_map<Id, Chunk> used_;
  std::unordered_map<Id, int64_t> small_;
};

}  // namespace hpu_sim
