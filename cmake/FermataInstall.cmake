# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: libfermata.so, the two public headers, the CMake package and the pkg-config file.
# The static layers are not installed: the shared library is the only promised form.

get_target_property(fermata_has_headers fermata HEADER_SETS)
if(NOT fermata_has_headers)
  target_sources(fermata PUBLIC
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${PROJECT_SOURCE_DIR}/include/fermata/fermata.h
    FILE_SET experimental TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
      FILES ${PROJECT_SOURCE_DIR}/include/fermata/fermata_experimental.h)
  # The experimental header refuses to compile without its macro; tests/capi compiles it with it.
  set_target_properties(fermata PROPERTIES INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
  install(TARGETS fermata EXPORT fermataTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET experimental DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()

include(CMakePackageConfigHelpers)
set(fermata_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fermata)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fermataConfig.cmake.in
  ${PROJECT_BINARY_DIR}/fermataConfig.cmake INSTALL_DESTINATION ${fermata_package_dir})
# 0.x promises nothing between minors.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fermataConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fermataConfig.cmake ${PROJECT_BINARY_DIR}/fermataConfigVersion.cmake
  DESTINATION ${fermata_package_dir})
install(EXPORT fermataTargets NAMESPACE fermata:: DESTINATION ${fermata_package_dir})

file(RELATIVE_PATH fermata_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/fermata.pc.in ${PROJECT_BINARY_DIR}/fermata.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fermata.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
