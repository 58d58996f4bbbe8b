#pragma once

// Catch2 under one name: version 2 has one header and some other names, version 3 is what the tests are written for.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>

namespace Catch {

using Detail::Approx;

namespace Matchers {

inline auto ContainsSubstring(const std::string& text, CaseSensitive::Choice choice = CaseSensitive::Yes) {
  return Contains(text, choice);
}

}  // namespace Matchers
}  // namespace Catch
#endif
