#pragma once

/// The one place that states the version: CMake reads these three lines too.
#define EVENKEEL_VERSION_MAJOR 0
#define EVENKEEL_VERSION_MINOR 1
#define EVENKEEL_VERSION_PATCH 0

#define EVENKEEL_DETAIL_QUOTE(x) #x
#define EVENKEEL_DETAIL_VERSION(major, minor, patch) \
  EVENKEEL_DETAIL_QUOTE(major) "." EVENKEEL_DETAIL_QUOTE(minor) "." EVENKEEL_DETAIL_QUOTE(patch)

namespace evenkeel {

/// "major.minor.patch". Before 1.0 a new minor version may break code, a new patch does not.
inline constexpr char version[] =
    EVENKEEL_DETAIL_VERSION(EVENKEEL_VERSION_MAJOR, EVENKEEL_VERSION_MINOR, EVENKEEL_VERSION_PATCH);

}  // namespace evenkeel

#undef EVENKEEL_DETAIL_VERSION
#undef EVENKEEL_DETAIL_QUOTE
