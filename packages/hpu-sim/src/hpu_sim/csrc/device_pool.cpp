#include "device_pool.h"

namespace hpu_sim {
namespace {

int64_t round_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

void DevicePool::reset(int64_t size, const PoolRules& rules) {
  // Numbers are never given twice, because blocks may outlive a pool.
  const Id last_id = last_id_;
  *this = DevicePool{};
  last_id_ = last_id;
  rules_ = rules;
  size_ = std::max<int64_t>(size - reserved(), 0);
  add_free({0, size_});
}

std::optional<DevicePool::Block> DevicePool::allocate(int64_t bytes) {
  const int64_t rounded = std::max(round_up(bytes, rules_.alignment), rules_.alignment);
  if (bytes < 2 * rules_.alignment && small_in_use_ + rounded <= rules_.small_slab) {
    small_in_use_ += rounded;
    small_[++last_id_] = rounded;
    return Block{last_id_, 0};
  }
  auto chunk = take(rounded);
  if (!chunk.has_value() && rounded <= free_bytes_) {
    defragment();
    chunk = take(rounded);
  }
  if (!chunk.has_value()) {
    return std::nullopt;
  }
  used_[++last_id_] = *chunk;
  return Block{last_id_, chunk->size};
}

void DevicePool::free(Id id) {
  const auto small = small_.find(id);
  if (small != small_.end()) {
    small_in_use_ -= small->second;
    small_.erase(small);
    return;
  }
  const auto found = used_.find(id);
  if (found == used_.end()) {
    return;  // of an earlier pool
  }
  Chunk chunk = found->second;
  used_.erase(found);
  const auto next = free_by_offset_.lower_bound(chunk.offset);
  std::vector<Chunk> neighbours;
  if (next != free_by_offset_.end() && next->first == chunk.offset + chunk.size) {
    neighbours.push_back({next->first, next->second});
  }
  if (next != free_by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == chunk.offset) {
      neighbours.push_back({previous->first, previous->second});
    }
  }
  for (const auto& neighbour : neighbours) {
    remove_free(neighbour);
    chunk = {std::min(chunk.offset, neighbour.offset), chunk.size + neighbour.size};
  }
  add_free(chunk);
}

int64_t DevicePool::largest_free() const {
  return free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first;
}

std::optional<DevicePool::Chunk> DevicePool::take(int64_t bytes) {
  const auto found = free_by_size_.lower_bound({bytes, 0});
  if (found == free_by_size_.end()) {
    return std::nullopt;
  }
  const Chunk chunk{found->second, found->first};
  remove_free(chunk);
  const int64_t slack = chunk.size - bytes;
  if (slack < rules_.max_slack && static_cast<double>(bytes) >= rules_.min_filling * static_cast<double>(chunk.size)) {
    return chunk;
  }
  add_free({chunk.offset + bytes, slack});
  return Chunk{chunk.offset, bytes};
}

void DevicePool::add_free(Chunk chunk) {
  if (chunk.size > 0) {
    free_by_offset_[chunk.offset] = chunk.size;
    free_by_size_.insert({chunk.size, chunk.offset});
    free_bytes_ += chunk.size;
  }
}

void DevicePool::remove_free(Chunk chunk) {
  free_by_offset_.erase(chunk.offset);
  free_by_size_.erase({chunk.size, chunk.offset});
  free_bytes_ -= chunk.size;
}

void DevicePool::defragment() {
  ++num_defragmentations_;
  int64_t offset = 0;
  for (auto& [id, chunk] : used_) {
    chunk.offset = offset;
    offset += chunk.size;
  }
  free_by_offset_.clear();
  free_by_size_.clear();
  free_bytes_ = 0;
  add_free({offset, size_ - offset});
}

}  // namespace hpu_sim
