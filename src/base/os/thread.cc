#include "base/os/thread.h"

#include <string>
#include <system_error>
#include <utility>

namespace shoal {

Result<std::thread> start_thread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return Status::node(std::string("cannot start a thread: ") + error.what());
  }
}

}  // namespace shoal
