// LinkSecret: the key that all ranks of a group share, and what is made with it.
//
// Thread rule: values and pure functions. The secret is never logged, and never put into arguments
// or the environment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/status.h"

namespace shoal::fabric {

using LinkSecret = std::array<std::byte, 32>;
using MessageMac = std::array<std::byte, 32>;

// From the kernel's generator.
Result<LinkSecret> make_secret();
// Random, never 0.
Result<uint64_t> make_epoch();

// HMAC-SHA256 over the parts, one after another.
MessageMac message_mac(const LinkSecret& secret,
                       std::initializer_list<std::span<const std::byte>> parts);
// In constant time.
bool is_same_mac(std::span<const std::byte> a, std::span<const std::byte> b);

// This boot of this machine, by the kernel's id; "unknown" where there is none.
std::string boot_id();

}  // namespace shoal::fabric
