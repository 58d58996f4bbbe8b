#pragma once

#include <cstdio>     // fprintf, where exceptions are off
#include <cstdlib>    // abort
#include <sstream>    // messages are built with a stream
#include <stdexcept>  // the standard bases
#include <string>

#include "evenkeel/core/types.hpp"  // Index

namespace evenkeel {

/// Data of the wrong shape, or labels out of range: the caller's matrices do not fit the object.
class ShapeError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Calls in an order that cannot work, e.g. backward before any forward.
class UsageError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A file that cannot be read as what it should be.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Called in place of a throw where exceptions are switched off (-fno-exceptions). It must not return.
using ErrorHandler = void (*)(const char* message);

namespace detail {

[[noreturn]] inline void print_and_abort(const char* message) {
  std::fprintf(stderr, "evenkeel: %s\n", message);
  std::abort();
}

inline ErrorHandler& error_handler() {
  static ErrorHandler handler = print_and_abort;
  return handler;
}

/// The pieces written one after another, as `stream << piece` writes them, numbers with up to nine digits: 1.0000001 is not
/// to read as 1.
template <class... Pieces>
std::string text(const Pieces&... pieces) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << pieces);
  return out.str();
}

/// A shape as it stands in messages: (rows, columns).
inline std::string shape(Index rows, Index columns) { return text('(', rows, ", ", columns, ')'); }

}  // namespace detail

/// Sets what happens on an error where exceptions are switched off; the default prints the message and aborts. It has no
/// effect where they are on. Not for use while other threads run the library.
inline void set_error_handler(ErrorHandler handler) { detail::error_handler() = handler; }

}  // namespace evenkeel

/// Throws Type(message text), the pieces being written one after another; without exceptions calls the error handler.
#if defined(__cpp_exceptions)
#define EVENKEEL_THROW(Type, ...) throw Type(::evenkeel::detail::text(__VA_ARGS__))
#else
#define EVENKEEL_THROW(Type, ...)                                                                   \
  do {                                                                                              \
    ::evenkeel::detail::error_handler()(::evenkeel::detail::text(#Type ": ", __VA_ARGS__).c_str()); \
    std::abort();                                                                                   \
  } while (false)
#endif
