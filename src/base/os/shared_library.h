// SharedLibrary: a library that is looked for at run time, so that programs run without it.
//
// Once open, it stays loaded until the process ends: what it has registered with the system may
// outlive every user. Thread rule: one thread at a time.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "base/status.h"

namespace shoal {

class SharedLibrary {
 public:
  // name: as dlopen(3) takes it. kNode: what the loader says.
  static Result<SharedLibrary> open(const char* name) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(handle);
    const char* why = dlerror();
    return Status::node(why != nullptr ? why : name);
  }
  // A function pointer of the symbol's type becomes the symbol, or null.
  template <typename Function>
  void find(const char* symbol_name, Function* function) {
    void* symbol = dlsym(handle_, symbol_name);
    if (symbol == nullptr && missing_.empty()) missing_ = symbol_name;
    std::memcpy(static_cast<void*>(function), static_cast<const void*>(&symbol), sizeof(symbol));
  }
  // The first symbol that was not found; empty: all were.
  const std::string& missing() const { return missing_; }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_;
  std::string missing_;
};

}  // namespace shoal
