#include "text/utf8.h"

#include <cstdint>

namespace shoal::text {
namespace {

// What a first byte asks for: the length of the character and the range of its second byte.
// Length 0: no character starts like this.
struct Lead {
  size_t length;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};  // a continuation, or an overlong form
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {0};
}

// How many bytes at the start of the text are a character's beginning, at most its length.
size_t matching_bytes(std::string_view text, const Lead& lead) {
  size_t matched = 1;
  while (matched < lead.length && matched < text.size()) {
    const auto byte = static_cast<uint8_t>(text[matched]);
    const uint8_t low = matched == 1 ? lead.low : 0x80;
    const uint8_t high = matched == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
    ++matched;
  }
  return matched;
}

}  // namespace

void take_characters(std::string& pending, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Lead lead = lead_of(static_cast<uint8_t>(rest[0]));
    const size_t matched = lead.length == 0 ? 1 : matching_bytes(rest, lead);
    if (matched < lead.length && matched == rest.size()) break;  // more may come
    if (lead.length != 0 && matched == lead.length) {
      out += rest.substr(0, matched);
    } else {
      out += kReplacementCharacter;
    }
    rest.remove_prefix(matched);
  }
  pending.erase(0, pending.size() - rest.size());
}

size_t valid_utf8_bytes(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    const std::string_view rest = text.substr(valid);
    const Lead lead = lead_of(static_cast<uint8_t>(rest[0]));
    if (lead.length == 0 || matching_bytes(rest, lead) < lead.length) break;
    valid += lead.length;
  }
  return valid;
}

}  // namespace shoal::text
