// Sha256: a running SHA-256 of bytes as they pass by.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

struct evp_md_ctx_st;

namespace shoal::model {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits; nothing may be added afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Of a whole file; kRequest where it cannot be read.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace shoal::model
