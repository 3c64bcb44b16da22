// AlignedBuffer: owns bytes aligned to a cache line; the allocation may fail as a status.
//
// The contents start as zeros, and pages are touched by whoever writes them first.
// Thread rule: one thread at a time for the object, any for disjoint bytes.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/status.h"

namespace shoal::tensor {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { release(); }

  // kNode when there is no memory for it.
  static Result<AlignedBuffer> allocate(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  void release();

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace shoal::tensor
