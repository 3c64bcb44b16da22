// AlignedBuffer: owns bytes aligned to a cache line; the allocation may fail as a status.
//
// The contents start as zeros, and pages are touched by whoever writes them first.
// Thread rule: one thread at a time for the object, any for disjoint bytes.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/status.h"

namespace shoal::tensor {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  // kNode when there is no memory for it.
  static Result<AlignedBuffer> allocate(size_t bytes);

  std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Unmap {
    size_t mapped = 0;
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte, Unmap> bytes_;
  size_t size_ = 0;
};

}  // namespace shoal::tensor
