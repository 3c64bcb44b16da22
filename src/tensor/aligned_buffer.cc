#include "tensor/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace shoal::tensor {
namespace {

// From this size on memory comes straight from the system: zeroed without touching it, in huge
// pages where the system has them, and returned to it when freed.
constexpr size_t kMappedFrom = size_t{1} << 20;

size_t rounded(size_t bytes) {
  return (bytes + AlignedBuffer::kAlignment - 1) & ~(AlignedBuffer::kAlignment - 1);
}

#ifdef MADV_HUGEPAGE
// Only advice: the system may refuse it.
void advise_huge_pages(void* data, size_t bytes) { ::madvise(data, bytes, MADV_HUGEPAGE); }
#else
void advise_huge_pages(void*, size_t) {}
#endif

void* map_zeroed(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  advise_huge_pages(data, bytes);
  return data;
}

void* allocate_zeroed(size_t bytes) {
  void* data = std::aligned_alloc(AlignedBuffer::kAlignment, rounded(bytes));
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  if (bytes <= SIZE_MAX / 2) {
    data = bytes >= kMappedFrom ? map_zeroed(bytes) : allocate_zeroed(bytes);
  }
  if (data == nullptr) {
    return Status::node("no memory for " + std::to_string(bytes) + " bytes");
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void AlignedBuffer::release() {
  if (data_ == nullptr) return;
  if (size_ >= kMappedFrom) {
    ::munmap(data_, size_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  size_ = 0;
}

}  // namespace shoal::tensor
