#include "cli/bench/fabric/bare_exchange.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/spin_pause.h"
#include "base/unique_fd.h"
#include "fabric/fabric.h"

namespace shoal::cli {
namespace {

constexpr int kPollsBetweenLooksAtTheClock = 4096;
constexpr size_t kPageBytes = 4096;

// Polls until done() says so.
template <typename Done>
Status spin_until(const Deadline& deadline, const Done& done) {
  while (true) {
    for (int i = 0; i < kPollsBetweenLooksAtTheClock; ++i) {
      if (done()) return Status::ok();
      spin_pause();
    }
    if (deadline.expired()) return Status::group("the bare exchange came to its deadline");
  }
}

// data = rank 0's part + rank 1's.
void sum(std::span<float> data, const float* theirs, int rank) {
  const std::array<const float*, 2> parts = {rank == 0 ? data.data() : theirs,
                                             rank == 0 ? theirs : data.data()};
  collective::sum_in_rank_order(data, parts);
}

class MappedExchange final : public BareExchange {
 public:
  MappedExchange(std::byte* memory, size_t bytes, size_t slot_bytes, int rank)
      : memory_(memory), bytes_(bytes), slot_bytes_(slot_bytes), rank_(rank) {}
  ~MappedExchange() override { munmap(memory_, bytes_); }

  // Of each rank: a page with its flag, and two slots, used in turn: who writes a slot again knows
  // from the other's next flag that it has been read.
  static size_t bytes_for(size_t slot_bytes) { return 2 * (kPageBytes + 2 * slot_bytes); }

  Status all_reduce(std::span<float> data, const Deadline& deadline) override {
    CHECK(data.size_bytes() <= slot_bytes_);
    ++round_;
    std::memcpy(slot(rank_), data.data(), data.size_bytes());
    flag(rank_).store(round_, std::memory_order_release);
    const std::atomic<uint64_t>& other = flag(1 - rank_);
    RETURN_IF_ERROR(
        spin_until(deadline, [&] { return other.load(std::memory_order_acquire) >= round_; }));
    sum(data, reinterpret_cast<const float*>(slot(1 - rank_)), rank_);
    return Status::ok();
  }

 private:
  std::byte* part(int rank) const {
    return memory_ + static_cast<size_t>(rank) * (kPageBytes + 2 * slot_bytes_);
  }
  std::atomic<uint64_t>& flag(int rank) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(part(rank));
  }
  std::byte* slot(int rank) const { return part(rank) + kPageBytes + round_ % 2 * slot_bytes_; }

  std::byte* const memory_;
  const size_t bytes_;
  const size_t slot_bytes_;
  const int rank_;
  uint64_t round_ = 0;
};

class SocketExchange final : public BareExchange {
 public:
  SocketExchange(UniqueFd socket, size_t bytes_max, int rank)
      : socket_(std::move(socket)), theirs_(bytes_max / sizeof(float)), rank_(rank) {}

  Status all_reduce(std::span<float> data, const Deadline& deadline) override {
    CHECK(data.size() <= theirs_.size());
    const auto mine = std::as_bytes(data);
    const auto theirs = std::as_writable_bytes(std::span(theirs_).first(data.size()));
    size_t sent = 0;
    size_t received = 0;
    Status failure;
    RETURN_IF_ERROR(spin_until(deadline, [&] {
      if (sent < mine.size()) {
        note(send(socket_.get(), &mine[sent], mine.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL),
             &sent, &failure);
      }
      if (received < theirs.size()) {
        note(recv(socket_.get(), &theirs[received], theirs.size() - received, MSG_DONTWAIT),
             &received, &failure);
      }
      return (sent == mine.size() && received == theirs.size()) || !failure.is_ok();
    }));
    RETURN_IF_ERROR(failure);
    sum(data, theirs_.data(), rank_);
    return Status::ok();
  }

 private:
  static void note(ssize_t count, size_t* total, Status* failure) {
    if (count > 0) {
      *total += static_cast<size_t>(count);
    } else if (count == 0) {
      *failure = Status::group("the bare exchange's peer has closed its socket");
    } else if (errno != EAGAIN && errno != EINTR) {
      *failure = Status::from_errno("the bare exchange's socket failed", errno);
    }
  }

  UniqueFd socket_;
  std::vector<float> theirs_;
  const int rank_;
};

// What rank 0 tells rank 1: whose descriptor to map, or where to connect and what to say there.
struct Meeting {
  uint64_t process = 0;
  uint64_t place = 0;  // a descriptor or a port
  uint64_t word = 0;
};

Result<Meeting> exchange_meeting(collective::Group& group, Meeting meeting,
                                 const Deadline& deadline) {
  ByteWriter writer;
  writer.write(meeting.process);
  writer.write(meeting.place);
  writer.write(meeting.word);
  std::vector<std::byte> message = writer.take();
  RETURN_IF_ERROR(group.broadcast_message(message, 0, deadline));
  ByteReader reader(message);
  ASSIGN_OR_RETURN(meeting.process, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(meeting.place, reader.read<uint64_t>());
  ASSIGN_OR_RETURN(meeting.word, reader.read<uint64_t>());
  return meeting;
}

Result<std::unique_ptr<BareExchange>> make_mapped(collective::Group& group, size_t slot_bytes,
                                                  const Deadline& deadline) {
  const size_t bytes = MappedExchange::bytes_for(slot_bytes);
  UniqueFd fd;
  Meeting meeting;
  if (group.rank() == 0) {
    fd.reset(memfd_create("shoal-bench", MFD_CLOEXEC));
    if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      return Status::from_errno("cannot make shared memory", errno);
    }
    meeting = {static_cast<uint64_t>(getpid()), static_cast<uint64_t>(fd.get()), 0};
  }
  ASSIGN_OR_RETURN(meeting, exchange_meeting(group, meeting, deadline));
  if (group.rank() == 1) {
    const std::string path = fmt::format("/proc/{}/fd/{}", meeting.process, meeting.place);
    fd.reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0) return Status::from_errno("cannot open rank 0's shared memory", errno);
  }
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) return Status::from_errno("cannot map shared memory", errno);
  auto exchange = std::make_unique<MappedExchange>(static_cast<std::byte*>(memory), bytes,
                                                   slot_bytes, group.rank());
  RETURN_IF_ERROR(group.barrier(deadline));  // rank 0 keeps its descriptor until here
  return std::unique_ptr<BareExchange>(std::move(exchange));
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

Result<UniqueFd> listen_on_loopback(uint16_t* port) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener.get() < 0 || bind(listener.get(), generic, length) != 0 ||
      listen(listener.get(), 1) != 0 || getsockname(listener.get(), generic, &length) != 0) {
    return Status::from_errno("cannot listen on the loopback address", errno);
  }
  *port = ntohs(address.sin_port);
  return listener;
}

// The peer's connection, known by the word that it has said: whoever says nothing is somebody else.
Result<UniqueFd> accept_peer(const UniqueFd& listener, uint64_t word) {
  UniqueFd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const timeval patience{.tv_sec = 2, .tv_usec = 0};
  uint64_t said = 0;
  if (peer.get() < 0 ||
      setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0 ||
      recv(peer.get(), &said, sizeof(said), MSG_WAITALL) != sizeof(said) || said != word) {
    return Status::group("somebody else connected to the bare exchange; try again");
  }
  return peer;
}

Result<UniqueFd> connect_to_peer(const Meeting& meeting) {
  UniqueFd peer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(static_cast<uint16_t>(meeting.place));
  if (peer.get() < 0 ||
      connect(peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      send(peer.get(), &meeting.word, sizeof(meeting.word), MSG_NOSIGNAL) != sizeof(meeting.word)) {
    return Status::from_errno("cannot connect the bare exchange", errno);
  }
  return peer;
}

Result<std::unique_ptr<BareExchange>> make_sockets(collective::Group& group, size_t bytes_max,
                                                   const Deadline& deadline) {
  UniqueFd listener;
  Meeting meeting;
  if (group.rank() == 0) {
    uint16_t port = 0;
    ASSIGN_OR_RETURN(listener, listen_on_loopback(&port));
    meeting.place = port;
    if (getrandom(&meeting.word, sizeof(meeting.word), 0) != sizeof(meeting.word)) {
      return Status::from_errno("no random numbers", errno);
    }
  }
  ASSIGN_OR_RETURN(meeting, exchange_meeting(group, meeting, deadline));
  UniqueFd peer;
  if (group.rank() == 1) {
    ASSIGN_OR_RETURN(peer, connect_to_peer(meeting));
  }
  RETURN_IF_ERROR(group.barrier(deadline));  // rank 1 has connected: accept() does not wait
  if (group.rank() == 0) {
    ASSIGN_OR_RETURN(peer, accept_peer(listener, meeting.word));
  }
  const int on = 1;
  if (setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
    return Status::from_errno("cannot set TCP_NODELAY", errno);
  }
  return std::unique_ptr<BareExchange>(
      std::make_unique<SocketExchange>(std::move(peer), bytes_max, group.rank()));
}

}  // namespace

Result<std::unique_ptr<BareExchange>> make_bare_exchange(collective::Group& group, size_t bytes_max,
                                                         const Deadline& deadline) {
  CHECK(group.size() == 2);
  return group.fabric().link_name() == "shm" ? make_mapped(group, bytes_max, deadline)
                                             : make_sockets(group, bytes_max, deadline);
}

}  // namespace shoal::cli
