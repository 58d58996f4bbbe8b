# Eigen 3.4.0 or newer, 5.x included. find_package gets no version: Eigen 5's version file refuses a request for 3.4.
if(TARGET Eigen3::Eigen)
  return()  # the parent project brings its own
endif()

find_package(Eigen3 NO_MODULE)
if(NOT Eigen3_FOUND)
  message(FATAL_ERROR
    "evenkeel needs Eigen 3.4.0 or newer, and none was found. Install it (Debian, Ubuntu: libeigen3-dev) "
    "or set Eigen3_DIR to the folder that holds Eigen3Config.cmake.")
endif()
if(Eigen3_VERSION VERSION_LESS 3.4.0)
  message(FATAL_ERROR "evenkeel needs Eigen 3.4.0 or newer, found ${Eigen3_VERSION} in ${Eigen3_DIR}.")
endif()
