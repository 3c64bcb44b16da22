// FakeVerbs: a provider of RDMA devices that exists in this process only, with the rules of several
// real ones, and what goes wrong with them.
//
// It fills a VerbsTable whose objects live in one FakeVerbs at a time (the last one made, which all
// threads use). A device's engine moves one message at a time: it takes the first send of a queue
// pair chosen at random, reads the sender's memory only then, and completes. Whatever a real device
// would let pass or lose, and whatever no device could do, is counted.
// Thread rule: the table from any thread; the rest as said.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

struct FakeVerbsOptions {
  enum class Mode {
    kLinuxRc,  // sends are tried again; a send without a receive ends with an error
    kLinuxUc,  // a send without a receive, or without a peer, is dropped and succeeds
    // A send waits until a receive of as many frames is there; a dead peer is silent; few queue
    // pairs and regions; whole pages only; a region across a multiple of 4 GiB loses what is
    // written to it.
    kThunderbolt,
  };
  Mode mode = Mode::kLinuxRc;
  // The addresses of the devices' ports, one device each.
  std::vector<std::string> addresses = {"127.0.0.1"};
  // Which devices' ports are joined: those with the same number, by device. None: all are.
  std::vector<int> cables{};
  uint64_t seed = 1;
  // Messages move by themselves: by polling, and by a thread while nobody polls. Else step() moves
  // them.
  bool has_engine_thread = true;
  bool gives_inline = true;
  // kThunderbolt's limits on queue pairs and regions hold for a device, as they do on a machine;
  // off, for each opening of it, where all ranks of a test share one.
  bool limits_devices = false;
  // All registered memory together counts against RLIMIT_MEMLOCK, as the kernel does it without
  // privileges.
  bool limits_locked_memory = false;
  // Every so many messages; 0: never.
  uint32_t bad_completion_every = 0;
  uint32_t short_message_every = 0;
  uint32_t swap_every = 0;  // with the next one of its queue pair
  uint32_t drop_every = 0;  // not of kLinuxRc
  // Receives end as if a peer had written to memory, which takes a receive too.
  bool writes = false;
};

// What is in use, and what happened.
struct FakeVerbsCounts {
  int contexts = 0;
  int domains = 0;
  int regions = 0;
  int channels = 0;
  int completion_queues = 0;
  int queue_pairs = 0;
  uint64_t delivered = 0;
  uint64_t delivered_bytes = 0;
  uint64_t receives_posted = 0;
  std::vector<uint64_t> delivered_from{};  // by the sender's device
  uint64_t dropped = 0;
  uint64_t faults = 0;  // that the options asked for
  // What the rules forbid: a queue that runs over, a send without a receive, lengths that do not
  // match, memory outside a region, an object destroyed while another stands on it.
  std::vector<std::string> violations;

  bool is_all_gone() const {
    return contexts + domains + regions + channels + completion_queues + queue_pairs == 0;
  }
};

class FakeVerbs {
 public:
  explicit FakeVerbs(const FakeVerbsOptions& options);
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  const VerbsTable& table() const;
  VerbsProvider provider() const;
  // Moves one message; false when there is none to move. Without an engine thread.
  bool step();
  // From now on a queue that is polled and empty moves one first, as if time passed.
  void move_when_polled();
  // Nothing is moved from now on: RC's sends fail, the others' vanish or wait.
  void set_link(bool is_up);
  void set_port_active(bool is_active);
  // While a device is stalled, nothing that it sends moves.
  void set_stalled(size_t device, bool is_stalled);
  // From now on no send is taken.
  void refuse_sends();
  // While it hangs, making and destroying queue pairs does not return.
  void set_hanging(bool hangs);
  // The same, for destroying only.
  void hang_when_destroying();
  // While it hangs, opening a device does not return; the context counts already.
  void set_open_hanging(bool hangs);
  FakeVerbsCounts counts() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::fabric
