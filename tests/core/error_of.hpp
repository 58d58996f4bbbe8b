#pragma once

#include <stdexcept>  // invalid_argument
#include <string>
#include <typeinfo>  // typeid

#include "evenkeel/core/error.hpp"  // ShapeError, UsageError

/// The type and text of the error that a call throws, as "ShapeError: text"; empty if it throws none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    const std::type_info& type = typeid(error);
    const char* name = type == typeid(evenkeel::ShapeError)    ? "ShapeError: "
                       : type == typeid(evenkeel::UsageError)  ? "UsageError: "
                       : type == typeid(evenkeel::FormatError) ? "FormatError: "
                       : type == typeid(std::invalid_argument) ? "invalid_argument: "
                                                               : type.name();
    return std::string(name) + error.what();
  }
  return "";
}
