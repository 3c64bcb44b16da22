// Whole characters out of a stream of UTF-8 bytes that may be cut anywhere, or be no UTF-8.
//
// Thread rule: stateless.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shoal::text {

// Moves everything that is certain from the front of pending to the end of out: whole characters as
// they are, and one U+FFFD for each longest piece that can be no part of one (Unicode 3.9, table
// 3-8, as Python and Rust do). What may still become a character stays: at most 3 bytes.
void take_characters(std::string& pending, std::string& out);

// How many bytes at the start are whole characters: all of them where the text is UTF-8.
size_t valid_utf8_bytes(std::string_view text);

// The U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace shoal::text
