#include "fabric/link/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <fstream>
#include <vector>

namespace shoal::fabric {
namespace {

Status fill_random(std::span<std::byte> out) {
  // getrandom gives up to 256 bytes without interruption.
  if (getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size())) {
    return Status::from_errno("getrandom", errno);
  }
  return Status::ok();
}

}  // namespace

Result<LinkSecret> make_secret() {
  LinkSecret secret;
  RETURN_IF_ERROR(fill_random(secret));
  return secret;
}

Result<uint64_t> make_epoch() {
  uint64_t epoch = 0;
  RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&epoch, 1))));
  return epoch | 1U;
}

MessageMac message_mac(const LinkSecret& secret,
                       std::initializer_list<std::span<const std::byte>> parts) {
  std::vector<unsigned char> input;
  for (const auto& part : parts) {
    const auto* begin = reinterpret_cast<const unsigned char*>(part.data());
    input.insert(input.end(), begin, begin + part.size());
  }
  MessageMac mac{};
  unsigned int bytes = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), input.data(), input.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &bytes);
  CHECK(made != nullptr && bytes == mac.size());
  return mac;
}

bool is_same_mac(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!std::getline(file, id) || id.size() > 36) return "unknown";
  return id;
}

}  // namespace shoal::fabric
