#include "fabric/shm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace shoal::fabric {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

size_t ShmSegment::size_bytes(const SlotClass& slots) {
  return kControlBytes +
         2 * size_t{slots.count} * (sizeof(ShmSlotHeader) + size_t{slots.payload_bytes});
}

Result<UniqueFd> ShmSegment::create(const SlotClass& slots) {
  RETURN_IF_ERROR(check_slot_class(slots));
  UniqueFd fd(memfd_create("shoal-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_valid()) return Status::from_errno("memfd_create", errno);
  const auto bytes = static_cast<off_t>(size_bytes(slots));
  // Allocated now: running out of memory is an error here, not a SIGBUS later.
  if (fallocate(fd.get(), 0, 0, bytes) != 0) {
    return Status::from_errno(
        "allocating " + std::to_string(bytes) + " bytes of shared memory for a link", errno);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::from_errno("F_ADD_SEALS", errno);
  return fd;
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::map(int fd, const SlotClass& slots) {
  RETURN_IF_ERROR(check_slot_class(slots));
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status::group("the shared memory of a link is not sealed: its size could change");
  }
  struct stat info{};
  if (fstat(fd, &info) != 0) return Status::from_errno("fstat of a link's memory", errno);
  const size_t bytes = size_bytes(slots);
  if (info.st_size != static_cast<off_t>(bytes)) {
    return Status::group("the shared memory of a link has " + std::to_string(info.st_size) +
                         " bytes where " + std::to_string(bytes) + " belong");
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) return Status::from_errno("mapping a link's memory", errno);
  return std::unique_ptr<ShmSegment>(new ShmSegment(static_cast<std::byte*>(base), slots));
}

ShmSegment::~ShmSegment() { munmap(base_, size_bytes(slots_)); }

}  // namespace shoal::fabric
