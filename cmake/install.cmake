include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Nothing here depends on the machine: share/, and a version file that asks for no pointer size.
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/evenkeel)

install(TARGETS evenkeel evenkeel_safetensors EXPORT evenkeelTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT evenkeelTargets NAMESPACE evenkeel:: DESTINATION ${package_dir})

configure_package_config_file(cmake/evenkeelConfig.cmake.in ${PROJECT_BINARY_DIR}/evenkeelConfig.cmake
  INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may break code.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/evenkeelConfigVersion.cmake
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES
  ${PROJECT_BINARY_DIR}/evenkeelConfig.cmake
  ${PROJECT_BINARY_DIR}/evenkeelConfigVersion.cmake
  DESTINATION ${package_dir})
