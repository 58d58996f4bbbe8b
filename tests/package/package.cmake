# One way of using the library from another project; the arguments are in CMakeLists.txt beside this file.
file(REMOVE_RECURSE ${FOLDER})
set(consumer ${CMAKE_CURRENT_LIST_DIR}/consumer)
set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -S ${consumer} -D CMAKE_CXX_COMPILER=${CXX}
  -D EVENKEEL_SOURCE=${SOURCE} -D VERSION=${VERSION})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(configure_build_and_run)
  run(${configure} -B ${FOLDER}/build ${ARGN})
  run(${CMAKE_COMMAND} --build ${FOLDER}/build)
  run(${FOLDER}/build/consumer)
endfunction()

# A package Eigen3 that says it is of this version, with the version file that such a one has.
function(pretend_eigen version)
  set(package ${FOLDER}/eigen-${version})
  file(WRITE ${package}/Eigen3Config.cmake
    "add_library(Eigen3::Eigen INTERFACE IMPORTED)\n"
    "target_include_directories(Eigen3::Eigen INTERFACE ${EIGEN})\n")
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${package}/Eigen3ConfigVersion.cmake
    VERSION ${version} COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
endfunction()

function(configure_must_fail expected)
  execute_process(COMMAND ${configure} ${ARGN} RESULT_VARIABLE result ERROR_VARIABLE message OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " message "${message}")  # CMake breaks lines where it likes
  if(result EQUAL 0 OR NOT message MATCHES "${expected}")
    message(FATAL_ERROR "Expected a configuration that fails with '${expected}', got ${result}:\n${message}")
  endif()
endfunction()

if(WAY STREQUAL "find_package")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/prefix)
  configure_build_and_run(-D WAY=find_package -D COMPONENTS=safetensors -D CMAKE_PREFIX_PATH=${FOLDER}/prefix)
elseif(WAY STREQUAL "eigen_versions")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/prefix)
  pretend_eigen(5.0.1)
  pretend_eigen(3.3.9)
  foreach(way IN ITEMS find_package add_subdirectory)
    set(arguments -D WAY=${way} -D CMAKE_PREFIX_PATH=${FOLDER}/prefix)
    run(${configure} -B ${FOLDER}/${way}-5 ${arguments} -D Eigen3_DIR=${FOLDER}/eigen-5.0.1)
    configure_must_fail("evenkeel needs Eigen 3\\.4\\.0 or newer, found 3\\.3\\.9"
      -B ${FOLDER}/${way}-3 ${arguments} -D Eigen3_DIR=${FOLDER}/eigen-3.3.9)
  endforeach()
elseif(WAY STREQUAL "add_subdirectory")
  configure_build_and_run(-D WAY=add_subdirectory -D COMPONENTS=safetensors)
else()
  configure_build_and_run(-D WAY=${WAY} -D EIGEN=${EIGEN})
endif()
